"""What the keys of a broker's listeners make of them."""

import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509

from kbroker.config.broker_config import BrokerConfig, read_broker_config
from kbroker.network.tls_listeners import TlsListener, check_change, renew, tls_listeners
from kbroker.protocol.config_def import ConfigError
from kbroker.security.distinguished_names import PrincipalRules
from kbroker.security.stores import KeyStore
from tests.fixtures.certificates import LOOPBACK, Authority, Identity


def configuration(identity: Identity, authority: Authority, **more: str) -> BrokerConfig:
    properties = {
        "broker.id": "1",
        "zookeeper.connect": "127.0.0.1:2181",
        "listeners": "SSL://127.0.0.1:9093,OTHER://127.0.0.1:9094,PLAINTEXT://127.0.0.1:9092",
        "listener.security.protocol.map": "SSL:SSL,OTHER:SSL,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity.file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        **more,
    }
    return read_broker_config(properties)


def listeners(identity: Identity, authority: Authority, **more: str) -> dict[str, TlsListener]:
    return tls_listeners(configuration(identity, authority, **more))


def test_only_listeners_with_tls_have_one(authority: Authority, broker_identity: Identity) -> None:
    assert list(listeners(broker_identity, authority)) == ["SSL", "OTHER"]


def test_a_listeners_own_keys_go_before_those_of_all(authority: Authority, broker_identity: Identity) -> None:
    more = {"ssl.client.auth": "requested", "listener.name.other.ssl.client.auth": "required"}
    rules = {"listener.name.other.ssl.principal.mapping.rules": "RULE:CN=(.*)/other-$1/"}
    found = listeners(broker_identity, authority, **more, **rules)
    assert [found[name].rules.apply("CN=ann") for name in ("SSL", "OTHER")] == ["CN=ann", "other-ann"]
    assert found["SSL"].context.verify_mode is ssl.CERT_OPTIONAL
    assert found["OTHER"].context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ssl.keystore.location": "/nowhere/key.pem"}, r"listener SSL: ssl\.keystore\.location=/nowhere/key\.pem"),
        ({"listener.name.other.ssl.keystore.location": "/nowhere"}, "listener OTHER: .*=/nowhere"),
        ({"listener.name.other.ssl.keystore.location": ""}, "listener OTHER: a TLS listener needs a key store"),
        ({"ssl.truststore.location": "{others}"}, "the trust store must trust the key store"),
        ({"ssl.principal.mapping.rules": "RULE:("}, r"ssl\.principal\.mapping\.rules"),
        ({"listener.name.other.ssl.client.auth": "perhaps"}, "perhaps"),
    ],
)
def test_stores_that_cannot_be_used_are_told_with_their_listener(
    change: dict[str, str], message: str, authority: Authority, broker_identity: Identity, tmp_path: Path
) -> None:
    others = str(Authority(tmp_path, "others").file)
    change = {key: text.replace("{others}", others) for key, text in change.items()}
    with pytest.raises(ConfigError, match=message):
        listeners(broker_identity, authority, **change)


def test_who_logs_in_is_not_named_by_a_certificate(authority: Authority, client_identity: Identity) -> None:
    certificate = ssl.PEM_cert_to_DER_cert(client_identity.certificate_file.read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert TlsListener(context, PrincipalRules()).principal(certificate) == "User:CN=client"
    assert TlsListener(context, PrincipalRules(), names_clients=False).principal(certificate) == "User:ANONYMOUS"
    assert TlsListener(context, PrincipalRules()).principal(None) == "User:ANONYMOUS"


def changed(
    before: Identity, after: Identity, authority: Authority, more: dict[str, str], trusted: Authority | None = None
) -> dict[str, TlsListener]:
    """What becomes of listeners of one identity that get another."""
    running = listeners(before, authority)
    return check_change(running, configuration(after, trusted or authority, **more))


def test_another_certificate_of_the_same_names_takes_its_place(authority: Authority, broker_identity: Identity) -> None:
    again = authority.issue("again", subject=[(x509.NameOID.COMMON_NAME, "Broker")], names=[*LOOPBACK, "new.example"])
    found = changed(broker_identity, again, authority, {})
    assert found["SSL"].settings.key_store.load() == KeyStore("PEM", str(again.file)).load()


def test_contents_count_not_the_file(authority: Authority, broker_identity: Identity, tmp_path: Path) -> None:
    file = tmp_path / "store.pem"
    file.write_bytes(broker_identity.file.read_bytes())
    key = {"ssl.keystore.location": str(file)}
    running = listeners(broker_identity, authority, **key)
    same = check_change(running, configuration(broker_identity, authority, **key))
    assert same["SSL"].settings == running["SSL"].settings
    other = authority.issue("renewed", subject=[(x509.NameOID.COMMON_NAME, "broker")])
    file.write_bytes(other.file.read_bytes())
    renewed = check_change(running, configuration(broker_identity, authority, **key))
    assert renewed["SSL"].settings != running["SSL"].settings


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("ssl.allow.dn.changes", "name would change from CN=broker to CN=other"),
        ("ssl.allow.san.changes", "would lose the names DNSName localhost, IPAddress 127.0.0.1"),
    ],
)
def test_other_names_are_refused_unless_they_are_allowed(
    key: str, message: str, authority: Authority, broker_identity: Identity
) -> None:
    other = (
        authority.issue("other")
        if "dn" in key
        else authority.issue("elsewhere", subject=[(x509.NameOID.COMMON_NAME, "broker")], names=["elsewhere.example"])
    )
    with pytest.raises(ConfigError, match=message):
        changed(broker_identity, other, authority, {})
    assert changed(broker_identity, other, authority, {key: "true"})


def test_brokers_that_could_not_reach_each_other_are_refused(
    authority: Authority, broker_identity: Identity, tmp_path: Path
) -> None:
    others = Authority(tmp_path, "others")
    same_name = others.issue("broker")
    with pytest.raises(ConfigError, match="old stores and the new ones could not reach each other"):
        changed(broker_identity, same_name, authority, {"ssl.client.auth": "required"}, trusted=others)


def test_a_trust_store_is_not_added(authority: Authority, broker_identity: Identity, tmp_path: Path) -> None:
    without = {"inter.broker.listener.name": "PLAINTEXT", "ssl.truststore.location": ""}
    running = listeners(broker_identity, authority, **without)
    with pytest.raises(ConfigError, match="a trust store cannot be added"):
        check_change(running, configuration(broker_identity, authority))


def test_a_trust_store_is_not_taken_away_where_clients_show_certificates(
    authority: Authority, broker_identity: Identity
) -> None:
    """The system's authorities would be trusted: whoever has a certificate of theirs would come in."""
    apart = {"inter.broker.listener.name": "PLAINTEXT", "listener.name.other.ssl.client.auth": "required"}
    running = listeners(broker_identity, authority, **apart)
    without = {"listener.name.other.ssl.truststore.location": ""}
    with pytest.raises(ConfigError, match="listener OTHER: its trust store cannot be taken away"):
        check_change(running, configuration(broker_identity, authority, **apart, **without))
    without = {"listener.name.ssl.ssl.truststore.location": ""}
    assert not check_change(running, configuration(broker_identity, authority, **apart, **without))[
        "SSL"
    ].settings.trust_store.is_given


def test_of_a_listener_that_stays_nothing_but_its_stores_changes(
    authority: Authority, broker_identity: Identity
) -> None:
    running = listeners(broker_identity, authority)
    again = authority.issue("again", subject=[(x509.NameOID.COMMON_NAME, "broker")])
    later = {"ssl.client.auth": "required", "ssl.enabled.protocols": "TLSv1.3"}
    same = check_change(running, configuration(broker_identity, authority, **later))
    assert same["SSL"] is running["SSL"]
    found = check_change({"SSL": running["SSL"]}, configuration(again, authority, **later))
    assert found["SSL"].context.verify_mode is ssl.CERT_NONE
    assert found["SSL"].context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert found["SSL"].settings.key_store.load() == KeyStore("PEM", str(again.file)).load()
    assert found["OTHER"].context.verify_mode is ssl.CERT_REQUIRED, "it comes now"


def test_a_server_keeps_what_it_has_when_the_new_stores_are_no_good(
    authority: Authority, broker_identity: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    running = listeners(broker_identity, authority)
    server = SimpleNamespace(tls=running)
    assert not renew(server, configuration(broker_identity, authority, **{"ssl.keystore.location": "/nowhere"}))
    assert server.tls is running
    assert "stay as they were: listener SSL: ssl.keystore.location=/nowhere" in caplog.text
    assert not renew(server, configuration(broker_identity, authority))
    again = authority.issue("once more", subject=[(x509.NameOID.COMMON_NAME, "broker")])
    assert renew(server, configuration(again, authority))
    assert server.tls is not running

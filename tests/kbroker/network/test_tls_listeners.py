"""What the keys of a broker's listeners make of them."""

import ssl
from pathlib import Path

import pytest

from kbroker.config.broker_config import read_broker_config
from kbroker.network.tls_listeners import TlsListener, tls_listeners
from kbroker.protocol.config_def import ConfigError
from kbroker.security.distinguished_names import PrincipalRules
from tests.fixtures.certificates import Authority, Identity


def listeners(identity: Identity, authority: Authority, **more: str) -> dict[str, TlsListener]:
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
    return tls_listeners(read_broker_config(properties))


def test_only_listeners_with_tls_have_one(authority: Authority, broker_identity: Identity) -> None:
    assert list(listeners(broker_identity, authority)) == ["SSL", "OTHER"]


def test_a_listeners_own_keys_go_before_those_of_all(authority: Authority, broker_identity: Identity) -> None:
    more = {"ssl.client.auth": "requested", "listener.name.other.ssl.client.auth": "required"}
    found = listeners(broker_identity, authority, **more)
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

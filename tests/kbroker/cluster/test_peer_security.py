import ssl

from kbroker.cluster.peer_security import connection_setup, show_new_stores
from kbroker.config.broker_config import read_broker_config
from tests.fixtures.certificates import Authority, Identity

GENERAL = {"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181"}


def test_a_broker_reaches_others_with_the_stores_of_the_listener(
    authority: Authority, broker_identity: Identity
) -> None:
    properties = {
        **GENERAL,
        "listeners": "SSL://127.0.0.1:9093",
        "security.inter.broker.protocol": "SSL",
        "listener.name.ssl.ssl.keystore.type": "PEM",
        "listener.name.ssl.ssl.keystore.location": str(broker_identity.file),
        "listener.name.ssl.ssl.truststore.type": "PEM",
        "listener.name.ssl.ssl.truststore.location": str(authority.file),
        "listener.name.ssl.ssl.endpoint.identification.algorithm": "",
    }
    context = connection_setup(read_broker_config(properties), "ssl").security.tls_context
    assert context is not None
    assert context.get_ca_certs(binary_form=True) == [ssl.PEM_cert_to_DER_cert(authority.file.read_text())]
    assert not context.check_hostname
    properties["listener.name.ssl.ssl.endpoint.identification.algorithm"] = "HTTPS"
    named = connection_setup(read_broker_config(properties), "ssl").security.tls_context
    assert named is not None
    assert named.check_hostname


def test_only_the_stores_change_while_a_broker_runs(authority: Authority, broker_identity: Identity) -> None:
    stores = {
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username=broker password={};"
    properties = {
        **GENERAL,
        **stores,
        "listeners": "SASL_SSL://127.0.0.1:9093",
        "security.inter.broker.protocol": "SASL_SSL",
        "ssl.keystore.location": str(broker_identity.file),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas.format("first"),
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": jaas.format("second").replace(
            "plain.Plain", "scram.Scram"
        ),
    }
    setup = connection_setup(read_broker_config(properties), "sasl_ssl")
    before = setup.security
    again = authority.issue("again")
    later = {
        "listener.name.sasl_ssl.ssl.keystore.location": str(again.file),
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "ssl.endpoint.identification.algorithm": "",
    }
    show_new_stores(setup, read_broker_config({**properties, **later}))
    after = setup.security
    assert (after.sasl_mechanism, after.sasl_password) == (before.sasl_mechanism, before.sasl_password)
    assert after.tls_settings.checks_hostname
    assert after.tls_settings.key_store.location == str(again.file)
    assert after.tls_context is not None
    assert after.tls_context is not before.tls_context


def test_a_plain_listener_is_reached_in_clear() -> None:
    assert connection_setup(read_broker_config(GENERAL), "PLAINTEXT").security.tls_context is None

import ssl

from kbroker.cluster.peer_security import connection_setup
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


def test_a_plain_listener_is_reached_in_clear() -> None:
    assert connection_setup(read_broker_config(GENERAL), "PLAINTEXT").security.tls_context is None

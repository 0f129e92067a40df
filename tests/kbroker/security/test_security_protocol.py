import pytest

from kbroker.security.security_protocol import SecurityProtocol


@pytest.mark.parametrize(
    ("name", "has_tls", "has_sasl"),
    [("PLAINTEXT", False, False), ("SSL", True, False), ("SASL_PLAINTEXT", False, True), ("SASL_SSL", True, True)],
)
def test_a_security_protocol_says_whether_it_encrypts_and_logs_in(name: str, has_tls: bool, has_sasl: bool) -> None:
    protocol = SecurityProtocol(name)
    assert (protocol.has_tls, protocol.has_sasl) == (has_tls, has_sasl)
    assert protocol == name
    assert f"{protocol}" == name

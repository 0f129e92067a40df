import ssl

import pytest

from kbroker.security.cipher_suites import TLS13, UnknownCipherSuite, allow, openssl_name

NUMBERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": 0xC02B,
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": 0xC030,
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": 0xCCA8,
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": 0xC024,
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": 0xC013,
    "TLS_RSA_WITH_AES_128_GCM_SHA256": 0x009C,
    "TLS_RSA_WITH_AES_256_CBC_SHA": 0x0035,
    "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256": 0x0067,
    "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8": 0xC0AE,
}
"""As IANA has them."""


@pytest.mark.parametrize(("name", "number"), NUMBERS.items())
def test_javas_names_are_those_of_the_same_suites(name: str, number: int) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:@SECLEVEL=0")
    numbers = {cipher["name"]: cipher["id"] & 0xFFFF for cipher in context.get_ciphers()}
    assert numbers[openssl_name(name)] == number


def test_only_what_is_named_is_allowed() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    allow(context, ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"])
    older = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert older == ["ECDHE-RSA-AES128-GCM-SHA256"]
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2


def test_newer_suites_are_allowed_all_or_not_at_all() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    allow(context, TLS13)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    mixed = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    allow(mixed, ["TLS_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"])
    assert mixed.maximum_version is ssl.TLSVersion.TLSv1_2
    with pytest.raises(UnknownCipherSuite, match="all suites can be allowed or none"):
        allow(context, ["TLS_AES_256_GCM_SHA384"])


@pytest.mark.parametrize("name", ["AES", "TLS_RSA_WITH_NULL_MD5", "TLS_RSA_WITH_RC4_128_SHA", "TLS_X_WITH_AES_1_GCM_A"])
def test_what_is_no_suite_is_told_by_its_name(name: str) -> None:
    with pytest.raises(UnknownCipherSuite, match=name):
        allow(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), [name])


def test_none_named_leaves_the_librarys_choice() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    before = context.get_ciphers(), context.maximum_version
    allow(context, [])
    assert (context.get_ciphers(), context.maximum_version) == before

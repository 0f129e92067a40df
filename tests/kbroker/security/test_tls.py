import dataclasses
import ssl
from pathlib import Path

import pytest

from kbroker.security.stores import KeyStore, StoreError, TrustStore
from kbroker.security.tls import TlsSettings, client_context, server_context, shake_hands
from tests.fixtures.certificates import HOUR, Authority, Identity


def settings(identity: Identity | None, authority: Authority, **more: object) -> TlsSettings:
    key_store = KeyStore() if identity is None else KeyStore("PEM", str(identity.file))
    return TlsSettings(key_store, TrustStore("PEM", str(authority.file)), **more)  # type: ignore[arg-type]


def test_both_sides_of_the_same_stores_shake_hands(authority: Authority, broker_identity: Identity) -> None:
    both = settings(broker_identity, authority, client_auth="required")
    assert shake_hands(client_context(both), server_context(both), "localhost") is None


def test_a_client_without_certificate_is_refused_where_one_is_required(
    authority: Authority, broker_identity: Identity
) -> None:
    client = client_context(settings(None, authority))
    for client_auth, is_let_in in (("none", True), ("requested", True), ("required", False)):
        server = server_context(settings(broker_identity, authority, client_auth=client_auth))
        assert (shake_hands(client, server, "localhost") is None) == is_let_in


def test_an_untrusted_certificate_is_refused_also_where_it_is_only_requested(
    authority: Authority, broker_identity: Identity, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "others").issue("stranger")
    client = client_context(settings(stranger, authority))
    for client_auth, is_let_in in (("none", True), ("requested", False), ("required", False)):
        server = server_context(settings(broker_identity, authority, client_auth=client_auth))
        assert (shake_hands(client, server, "localhost") is None) == is_let_in


def test_names_and_times_are_checked(authority: Authority, broker_identity: Identity) -> None:
    client = client_context(settings(None, authority))
    assert "mismatch" in str(shake_hands(client, server_context(settings(broker_identity, authority)), "elsewhere"))
    expired = authority.issue("expired in memory", expires_in=-HOUR)
    assert "expired" in str(shake_hands(client, server_context(settings(expired, authority)), "localhost"))
    any_name = client_context(settings(None, authority, checks_hostname=False))
    assert shake_hands(any_name, server_context(settings(broker_identity, authority)), "elsewhere") is None


def test_a_certificate_that_is_trusted_itself_needs_no_authority(
    authority: Authority, broker_identity: Identity
) -> None:
    pinned = TlsSettings(trust_store=TrustStore("PEM", str(broker_identity.certificate_file)))
    server = server_context(settings(broker_identity, authority))
    assert shake_hands(client_context(pinned), server, "localhost") is None


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_only_enabled_versions_are_spoken(version: str, authority: Authority, broker_identity: Identity) -> None:
    server = server_context(settings(broker_identity, authority, enabled_protocols=(version,)))
    other = {"TLSv1.2": "TLSv1.3", "TLSv1.3": "TLSv1.2"}[version]
    assert shake_hands(client_context(settings(None, authority)), server, "localhost") is None
    other_client = client_context(settings(None, authority, enabled_protocols=(other,)))
    assert shake_hands(other_client, server, "localhost") is not None
    assert server.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"enabled_protocols": ("TLSv1",)}, r"ssl\.enabled\.protocols=TLSv1: TLSv1\.2 and TLSv1\.3 are supported"),
        ({"enabled_protocols": ()}, r"ssl\.enabled\.protocols="),
        ({"cipher_suites": ("NONE",)}, r"ssl\.cipher\.suites: NONE is no cipher suite"),
        (
            {"cipher_suites": ("TLS_RSA_WITH_AES_128_CBC_SHA",), "enabled_protocols": ("TLSv1.3",)},
            r"ssl\.cipher\.suites holds none for the versions",
        ),
        ({"key_store": KeyStore()}, "a TLS listener needs a key store"),
    ],
)
def test_what_cannot_be_is_told(
    change: dict[str, object], message: str, authority: Authority, broker_identity: Identity
) -> None:
    with pytest.raises(StoreError, match=message):
        server_context(dataclasses.replace(settings(broker_identity, authority), **change))  # type: ignore[arg-type]


def test_a_key_of_another_certificate_is_refused(broker_identity: Identity, client_identity: Identity) -> None:
    store = KeyStore(
        "PEM",
        key=client_identity.key_file.read_text(),
        certificate_chain=broker_identity.certificate_file.read_text(),
    )
    with pytest.raises(StoreError, match="key values mismatch"):
        server_context(TlsSettings(store))

"""Certificates of a development cluster, held to what clients ask of them."""

import builtins
import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest

from kbroker.dev.certificates import AUTHORITY, BROKER, LASTS, RENEWED_BEFORE, ensure_certificates
from kbroker.security.stores import StoreError

NOW = datetime.datetime.now(datetime.UTC)


def shake_hands(folder: Path, name: str) -> None:
    """Let a client that trusts the authority talk to a server of that name; raises what the client says."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / BROKER)
    client = ssl.create_default_context(cafile=folder / AUTHORITY)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = client.wrap_bio(down, up, server_hostname=name), server.wrap_bio(up, down, server_side=True)
    for _ in range(3):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1"])
def test_clients_that_trust_the_authority_accept_the_broker_by_its_names(tmp_path: Path, name: str) -> None:
    ensure_certificates(tmp_path, NOW)
    shake_hands(tmp_path, name)


def test_another_name_and_another_clusters_authority_are_refused(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, "broker.example")
    other = tmp_path / "other"
    other.mkdir()
    ensure_certificates(other, NOW)
    (other / AUTHORITY).replace(tmp_path / AUTHORITY)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, "localhost")


def test_nobody_else_may_read_the_key_and_the_authoritys_is_nowhere(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, NOW)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {AUTHORITY: 0o644, BROKER: 0o600}
    assert "PRIVATE KEY" not in (tmp_path / AUTHORITY).read_text()
    assert (tmp_path / BROKER).read_text().count("BEGIN PRIVATE KEY") == 1


def test_certificates_are_kept_until_shortly_before_they_end(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, NOW)
    first = (tmp_path / BROKER).read_text()
    ensure_certificates(tmp_path, NOW + LASTS - RENEWED_BEFORE - datetime.timedelta(days=1))
    assert (tmp_path / BROKER).read_text() == first
    ensure_certificates(tmp_path, NOW + LASTS - RENEWED_BEFORE + datetime.timedelta(days=1))
    assert (tmp_path / BROKER).read_text() != first


def test_a_missing_library_is_named_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] == "cryptography":
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StoreError, match=r"cryptography.*kbroker\[security\]"):
        ensure_certificates(tmp_path, NOW)
    assert not list(tmp_path.iterdir())

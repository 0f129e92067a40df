"""Stores in Java's forms, made of a test's certificates."""

from pathlib import Path

import jks
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.fixtures.certificates import PASSWORD, Authority, Identity

STORE_PASSWORD = "of-the-store"
DER = serialization.Encoding.DER


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(DER)


def pkcs12_file(folder: Path, identity: Identity, authority: Authority) -> Path:
    """A key store."""
    file = folder / "key.p12"
    how = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    file.write_bytes(
        pkcs12.serialize_key_and_certificates(b"me", identity.key, identity.certificate, [authority.certificate], how)
    )
    return file


def jks_files(folder: Path, identity: Identity, authority: Authority) -> tuple[Path, Path]:
    """A key store whose key has a password of its own, and a trust store."""
    pkcs8 = identity.key.private_bytes(DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = [der(identity.certificate), der(authority.certificate)]
    key = jks.PrivateKeyEntry.new("me", chain, pkcs8, "pkcs8")
    key.encrypt(PASSWORD)
    trusted = jks.TrustedCertEntry.new("ca", der(authority.certificate))
    files = folder / "key.jks", folder / "trust.jks"
    for file, entry in zip(files, (key, trusted), strict=True):
        jks.KeyStore.new("jks", [entry]).save(str(file), STORE_PASSWORD)
    return files

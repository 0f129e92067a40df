"""Stores in Java's forms, made of a test's certificates."""

from pathlib import Path

import jks
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate

from tests.fixtures.certificates import PASSWORD, Authority, Identity

STORE_PASSWORD = "of-the-store"
DER = serialization.Encoding.DER


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(DER)


def pkcs12_file(folder: Path, identity: Identity, *others: Authority | tuple[x509.Certificate, str | None]) -> Path:
    """A key store, with other certificates, which may have names."""
    file = folder / "key.p12"
    how = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    pairs = [(each.certificate, None) if isinstance(each, Authority) else each for each in others]
    named = [PKCS12Certificate(certificate, name.encode() if name else None) for certificate, name in pairs]
    file.write_bytes(pkcs12.serialize_key_and_certificates(b"me", identity.key, identity.certificate, named, how))
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

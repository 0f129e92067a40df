"""Certificates of a development cluster: an authority of its own, and what the brokers on loopback show.

FOLDER/authority.pem     whom clients trust: this one authority, which signs nothing any more (its key is not kept)
FOLDER/broker.pem        the brokers' key and certificate, for localhost, 127.0.0.1 and ::1; mode 0600
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.dev.private_files import write_private
from kbroker.security.stores import missing

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY, BROKER = "authority.pem", "broker.pem"
ADDRESSES = ("127.0.0.1", "::1")
LASTS = datetime.timedelta(days=365)
RENEWED_BEFORE = datetime.timedelta(days=30)
"""The end; a cluster that starts then gets new ones, an authority included."""
A_DAY = datetime.timedelta(days=1)


def ensure_certificates(folder: Path, now: datetime.datetime) -> None:
    """Make the certificates, unless they are there and last. Raises StoreError where cryptography is not installed."""
    try:
        from cryptography import x509
    except ImportError as error:
        raise missing("cryptography", "a development cluster with TLS") from error
    files = folder / AUTHORITY, folder / BROKER
    if all(file.exists() for file in files):
        ends = min(x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc for file in files)
        if ends - now > RENEWED_BEFORE:
            return
    authority, broker = _make(now)
    write_private(files[1], broker)
    write_private(files[0], authority, mode=0o644)


def _make(now: datetime.datetime) -> tuple[str, str]:
    """Return the authority's certificate, and the broker's with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem = serialization.Encoding.PEM
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    name = _name("kbroker dev")
    authority = (
        _begun(name, name, authority_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
    )
    alternatives: list[x509.GeneralName] = [x509.DNSName("localhost")]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in ADDRESSES]
    broker = (
        _begun(_name("broker"), name, key, now)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    signed = [each.sign(authority_key, hashes.SHA256()).public_bytes(pem).decode() for each in (authority, broker)]
    plain = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    return signed[0], plain + signed[1]


def _name(text: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """What a key is for: an authority signs certificates, everybody else handshakes."""
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _begun(
    owner: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(owner)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - A_DAY)
        .not_valid_after(now + LASTS)
    )

"""TLS contexts of Kafka's settings, for those who are called (brokers) and those who call (clients, brokers too)."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kbroker.security import cipher_suites
from kbroker.security.stores import PEM, KeyMaterial, KeyStore, StoreError, TrustStore, pem_of

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
MOST_FLIGHTS = 16


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What one side shows, whom it trusts, and what it speaks."""

    key_store: KeyStore = field(default_factory=KeyStore)
    trust_store: TrustStore = field(default_factory=TrustStore)
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    """Java's names; none: OpenSSL's choice."""
    client_auth: str = "none"
    """Of a server: whether clients show a certificate."""
    checks_hostname: bool = True
    """Of a client: whether the server's certificate must carry the name it is reached by."""

    def loaded(self) -> TlsSettings:
        """The same with what the stores hold now in place of their files; raises StoreError."""
        material, trusted = self.key_store.load(), self.trust_store.load()
        return replace(
            self,
            key_store=KeyStore() if material is None else material.as_store(),
            trust_store=TrustStore() if trusted is None else TrustStore(PEM, certificates=pem_of(trusted)),
        )


def with_stores_of(settings: TlsSettings, other: TlsSettings) -> TlsSettings:
    """Return settings with the stores of others."""
    return replace(settings, key_store=other.key_store, trust_store=other.trust_store)


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return what a listener shakes hands with; raises StoreError."""
    material = settings.key_store.load()
    if material is None:
        raise StoreError("a TLS listener needs a key store: set ssl.keystore.location, or ssl.keystore.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_up(context, settings, material)
    context.verify_mode = CLIENT_AUTH[settings.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, settings.trust_store, ssl.Purpose.CLIENT_AUTH)
    return context


def client_context(settings: TlsSettings, authorities: str | None = None) -> ssl.SSLContext:
    """Return what connections to a server shake hands with; raises StoreError.

    `authorities` names a file (PEM) of whom to trust where there is no trust store; raises OSError where that fails.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_hostname
    _set_up(context, settings, settings.key_store.load())
    if authorities is not None and not settings.trust_store.is_given:
        context.load_verify_locations(authorities)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    else:
        _trust(context, settings.trust_store, ssl.Purpose.SERVER_AUTH)
    return context


def _set_up(context: ssl.SSLContext, settings: TlsSettings, material: KeyMaterial | None) -> None:
    versions = [VERSIONS[name] for name in settings.enabled_protocols if name in VERSIONS]
    if not versions or len(versions) < len(settings.enabled_protocols):
        names = ",".join(settings.enabled_protocols)
        raise StoreError(f"ssl.enabled.protocols={names}: {' and '.join(VERSIONS)} are supported")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        cipher_suites.allow(context, settings.cipher_suites)
    except cipher_suites.UnknownCipherSuite as error:
        raise StoreError(f"ssl.cipher.suites: {error}") from error
    if context.minimum_version > context.maximum_version:
        raise StoreError("ssl.cipher.suites holds none for the versions in ssl.enabled.protocols")
    if material is not None:
        show(context, material)


def show(context: ssl.SSLContext, material: KeyMaterial) -> None:
    """Have the context show these certificates; raises StoreError."""
    with _file_of(material.pem) as path:
        try:
            context.load_cert_chain(path, password=material.password or "")
        except (ssl.SSLError, ValueError) as error:
            raise StoreError(f"the key store's key cannot be used: {_reason(error)}") from error


def trust(context: ssl.SSLContext, certificates: tuple[bytes, ...]) -> None:
    """Have the context trust these certificates (DER), as Java does: any of them, not only authorities."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for certificate in certificates:
        try:
            context.load_verify_locations(cadata=certificate)
        except ssl.SSLError as error:
            raise StoreError(f"a certificate of the trust store cannot be used: {_reason(error)}") from error


def _trust(context: ssl.SSLContext, store: TrustStore, purpose: ssl.Purpose) -> None:
    certificates = store.load()
    if certificates is None:
        context.load_default_certs(purpose)
    else:
        trust(context, certificates)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error)


@contextlib.contextmanager
def _file_of(data: bytes) -> Iterator[str]:
    """A file that OpenSSL can read, in memory where the system has such files: keys are not written to a disk."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("key")
        with open(number, "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{number}"
    else:
        with tempfile.NamedTemporaryFile() as named:
            named.write(data)
            named.flush()
            yield named.name


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str | None = None) -> str | None:
    """Let two contexts shake hands with each other, in memory; returns why they cannot, None when they can."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(MOST_FLIGHTS):
        for side in tuple(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return getattr(error, "verify_message", None) or _reason(error)
        if not sides:
            return None
    return "they do not come to an end"

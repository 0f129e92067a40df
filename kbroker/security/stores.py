"""Key stores and trust stores as Kafka's settings name them: PEM (files or texts), PKCS12, Java's own JKS.

A key store holds the own private key and its certificates, a trust store those of the authorities that are trusted.
Java reads PKCS12 and JKS by either name; so does this. Both need libraries of the extra `security`, PEM does not.
Of a key in a trust store Java trusts the key's own certificate, and none of those that vouch for it.
"""

from __future__ import annotations

import base64
import re
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
TYPES = (PEM, PKCS12, JKS)
JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_BLOCK = re.compile(r"-+BEGIN\s+([A-Z0-9 ]+?)\s*-+([A-Za-z0-9+/=\s]*)-+END\s+\1\s*-+")
"""In a properties file that continues its lines, blanks stand where the text had line ends."""
_CERTIFICATES = ("CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE")
_PLAIN_KEY, _ENCRYPTED_KEY = "PRIVATE KEY", "ENCRYPTED PRIVATE KEY"

Found = TypeVar("Found")


class StoreError(ValueError):
    """A store that cannot be used; the text is one line that names it, and never a secret."""


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A private key and its certificates, the own one first."""

    key: str = field(repr=False)
    """PEM, PKCS#8."""
    password: str | None = field(repr=False)
    """Of the key, where it is encrypted."""
    certificates: tuple[bytes, ...] = field(repr=False)
    """DER."""

    @property
    def pem(self) -> bytes:
        """All of it."""
        return f"{self.key}\n{pem_of(self.certificates)}".encode()

    def as_store(self) -> KeyStore:
        """A store that needs no file."""
        chain = pem_of(self.certificates)
        return KeyStore(PEM, key=self.key, certificate_chain=chain, key_password=self.password)


@dataclass(frozen=True, slots=True)
class KeyStore:
    """Where the own key and certificates are: ssl.keystore.* and ssl.key.password."""

    type: str = JKS
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    """The key itself, as PEM."""
    certificate_chain: str | None = field(default=None, repr=False)

    @property
    def is_given(self) -> bool:
        """Whether there is one."""
        return bool(self.location or self.key or self.certificate_chain)

    def load(self) -> KeyMaterial | None:
        """Read it; None where none is given. Raises StoreError."""
        kind = self.type.upper()
        _check_type("ssl.keystore.type", self.type)
        if self.key or self.certificate_chain:
            return self._from_texts(kind)
        if not self.location:
            if self.password:
                raise StoreError("ssl.keystore.password is set, but ssl.keystore.location is not")
            return None
        if kind == PEM:
            if self.password:
                raise StoreError("ssl.keystore.password cannot be set for PEM files: ssl.key.password opens the key")
            text = _read_text("ssl.keystore.location", self.location)
            return _pem_material(f"ssl.keystore.location={self.location}", text, text, self.key_password)
        if not self.password:
            raise StoreError(f"ssl.keystore.location={self.location} needs ssl.keystore.password")
        return self._from_store(self.location, self.password)

    def _from_texts(self, kind: str) -> KeyMaterial:
        if kind != PEM:
            raise StoreError(f"ssl.keystore.key needs ssl.keystore.type=PEM, not {self.type}")
        if self.location or self.password:
            raise StoreError("ssl.keystore.key is set: ssl.keystore.location and .password cannot be set, too")
        if not self.key or not self.certificate_chain:
            raise StoreError("ssl.keystore.key and ssl.keystore.certificate.chain go together: one is missing")
        return _pem_material("ssl.keystore.key", self.key, self.certificate_chain, self.key_password)

    def _from_store(self, location: str, password: str) -> KeyMaterial:
        what = f"ssl.keystore.location={location}"
        data = _read_bytes("ssl.keystore.location", location)
        if data.startswith(JKS_MAGIC):
            return _opened(what, lambda: _jks_key(data, password, self.key_password or password))
        return _opened(what, lambda: _pkcs12_key(data, password))


@dataclass(frozen=True, slots=True)
class TrustStore:
    """Where the trusted certificates are: ssl.truststore.*."""

    type: str = JKS
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    """The certificates themselves, as PEM."""

    @property
    def is_given(self) -> bool:
        """Whether there is one; else the system's authorities are trusted."""
        return bool(self.location or self.certificates)

    def load(self) -> tuple[bytes, ...] | None:
        """Read the certificates (DER); None where no store is given. Raises StoreError."""
        kind = self.type.upper()
        _check_type("ssl.truststore.type", self.type)
        if self.certificates:
            if kind != PEM:
                raise StoreError(f"ssl.truststore.certificates needs ssl.truststore.type=PEM, not {self.type}")
            if self.location or self.password:
                raise StoreError("ssl.truststore.certificates is set: .location and .password cannot be set, too")
            return _certificates("ssl.truststore.certificates", self.certificates)
        if not self.location:
            if self.password:
                raise StoreError("ssl.truststore.password is set, but ssl.truststore.location is not")
            return None
        what = f"ssl.truststore.location={self.location}"
        if kind == PEM:
            if self.password:
                raise StoreError("ssl.truststore.password cannot be set for PEM files")
            return _certificates(what, _read_text("ssl.truststore.location", self.location))
        data, password = _read_bytes("ssl.truststore.location", self.location), self.password
        if data.startswith(JKS_MAGIC):
            found = _opened(what, lambda: _jks_certificates(data, password))
        else:
            found = _opened(what, lambda: _pkcs12_certificates(data, password))
        if not found:
            raise StoreError(f"{what} holds no certificate")
        return found


def pem_of(certificates: Iterable[bytes]) -> str:
    """Return certificates (DER) as one text."""
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in certificates)


def missing(library: str, what: str) -> StoreError:
    """Say that a library of an extra is not installed."""
    return StoreError(f"{what} needs the library {library}: pip install 'kbroker[security]'")


def _check_type(key: str, text: str) -> None:
    if text.upper() not in TYPES:
        raise StoreError(f"{key}={text}: {', '.join(TYPES)} can be read")


def _read_bytes(key: str, location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise StoreError(f"{key}={location} cannot be read: {error.strerror or error}") from error


def _read_text(key: str, location: str) -> str:
    return _read_bytes(key, location).decode("utf-8", "replace")


def _opened(what: str, read: Callable[[], Found]) -> Found:
    """Call what reads a store, and say in one line why that fails, whatever library it is."""
    try:
        return read()
    except StoreError as error:
        raise StoreError(f"{what}: {error}") from error
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreError(f"{what} cannot be read, is its password right? ({reason})") from error


# -- PEM ------------------------------------------------------------------------------------------------------------


def _blocks(text: str) -> Iterable[tuple[str, bytes]]:
    """What each block is called, and its bytes (DER)."""
    for match in _BLOCK.finditer(text):
        yield match[1], base64.b64decode("".join(match[2].split()))


def _certificates(what: str, text: str) -> tuple[bytes, ...]:
    try:
        found = tuple(der for kind, der in _blocks(text) if kind in _CERTIFICATES)
    except ValueError as error:
        raise StoreError(f"{what}: a certificate's text is broken: {error}") from error
    if not found:
        raise StoreError(f"{what} holds no certificate in PEM form")
    return found


def _pem_material(what: str, key_text: str, chain: str, password: str | None) -> KeyMaterial:
    try:
        keys = [(kind, der) for kind, der in _blocks(key_text) if kind.endswith("PRIVATE KEY")]
    except ValueError as error:
        raise StoreError(f"{what}: a text in PEM form is broken: {error}") from error
    if len(keys) != 1:
        raise StoreError(f"{what} must hold one private key in PEM form, not {len(keys)}")
    kind, key = keys[0]
    if kind not in (_PLAIN_KEY, _ENCRYPTED_KEY):
        raise StoreError(f"{what}: the key must be in PKCS#8 form ({_PLAIN_KEY}), not {kind}")
    if password and kind == _PLAIN_KEY:
        raise StoreError(f"{what}: ssl.key.password is set, but the key is not encrypted")
    if not password and kind == _ENCRYPTED_KEY:
        raise StoreError(f"{what}: the key is encrypted, so ssl.key.password is needed")
    return KeyMaterial(_key_pem(key, kind), password or None, _certificates(what, chain))


def _key_pem(der: bytes, kind: str = _PLAIN_KEY) -> str:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


# -- JKS ------------------------------------------------------------------------------------------------------------


def _jks(data: bytes, password: str | None) -> Any:
    try:
        import jks
    except ImportError as error:
        raise missing("pyjks", "a store in JKS form") from error
    return jks.KeyStore.loads(data, password, try_decrypt_keys=False)


def _jks_key(data: bytes, password: str, key_password: str) -> KeyMaterial:
    store = _jks(data, password)
    if not store.private_keys:
        raise StoreError("it holds no private key")
    _, entry = min(store.private_keys.items())
    entry.decrypt(key_password)
    chain = tuple(bytes(der) for _, der in entry.cert_chain)
    return KeyMaterial(_key_pem(entry.pkey_pkcs8), None, chain)


def _jks_certificates(data: bytes, password: str | None) -> tuple[bytes, ...]:
    store = _jks(data, password or None)
    own = [bytes(entry.cert_chain[0][1]) for entry in store.private_keys.values() if entry.cert_chain]
    return (*own, *(bytes(entry.cert) for entry in store.certs.values()))


# -- PKCS12 ---------------------------------------------------------------------------------------------------------


def _pkcs12(data: bytes, password: str | None) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise missing("cryptography", "a store in PKCS12 form") from error
    return pkcs12.load_pkcs12(data, password.encode() if password else None)


def _der(entry: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    encoded: bytes = entry.certificate.public_bytes(Encoding.DER)
    return encoded


def _pkcs12_key(data: bytes, password: str) -> KeyMaterial:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    store = _pkcs12(data, password)
    if store.key is None or store.cert is None:
        raise StoreError("it holds no private key with a certificate")
    der = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return KeyMaterial(_key_pem(der), None, tuple(map(_der, _chain_and_others(store)[0])))


def _pkcs12_certificates(data: bytes, password: str | None) -> tuple[bytes, ...]:
    store = _pkcs12(data, password)
    if store.cert is None:
        return tuple(map(_der, store.additional_certs))
    chain, others = _chain_and_others(store)
    return tuple(map(_der, [chain[0], *filter(_is_entry, others)]))


def _chain_and_others(store: Any) -> tuple[list[Any], list[Any]]:
    """The certificates of the store's key, in the order of who signed whom, as TLS wants it; and those that are left.

    What is in a chain and an entry of its own is there twice.
    """
    chain = [store.cert]
    others = sorted(store.additional_certs, key=_is_entry)
    signer = store.cert
    while signer is not None and signer.certificate.subject != signer.certificate.issuer:
        issuer = signer.certificate.issuer
        signer = next((each for each in others if each.certificate.subject == issuer), None)
        if signer is not None:
            others.remove(signer)
            chain.append(signer)
    return chain, others


def _is_entry(certificate: Any) -> bool:
    """Whether it stands for itself, by an alias: Java names what vouches for a key by its subject, OpenSSL does not."""
    return bool(certificate.friendly_name) and b"=" not in certificate.friendly_name

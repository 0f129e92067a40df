"""Passwords in dynamic configurations, encrypted as Kafka's brokers keep them in ZooKeeper.

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,salt:…,iterations:4096,
    encryptedPassword:…,passwordLength:8,initializationVector:…

In one line, in any order, bytes in base64. The key comes from `password.encoder.secret`, the salt and the iterations by
PBKDF2; each password says itself how it was encrypted, so that other settings only hold for new ones.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbroker.security.stores import missing

KEY_FACTORIES = {
    "PBKDF2WithHmacSHA1": "sha1",
    "PBKDF2WithHmacSHA224": "sha224",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA384": "sha384",
    "PBKDF2WithHmacSHA512": "sha512",
}
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
CIPHERS = (CBC, GCM)
KEY_LENGTHS = (128, 192, 256)
_SALT_BYTES, _BLOCK_BYTES = 256, 16
_GCM_VECTOR_BYTES, _GCM_TAG_BITS = 12, 128
MOST_ITERATIONS = 1_000_000
"""A stored password with more is not read, and none is written: each would take the broker seconds."""


class PasswordError(ValueError):
    """A password that cannot be encrypted or decrypted; the text never holds it."""


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    """Encrypts by its settings, decrypts what was encrypted with the same secret.

    Both take milliseconds, with many iterations half a second: not for an event loop.
    """

    secret: str = field(repr=False)
    key_factory: str = DEFAULT_KEY_FACTORY
    cipher: str = CBC
    key_length: int = 128
    iterations: int = 4096

    def __post_init__(self) -> None:
        object.__setattr__(self, "key_factory", _spelled(self.key_factory, KEY_FACTORIES))
        object.__setattr__(self, "cipher", _spelled(self.cipher, CIPHERS))
        if self.key_factory not in KEY_FACTORIES:
            raise PasswordError(f"{self.key_factory} is not one of {', '.join(KEY_FACTORIES)}")
        if self.cipher not in CIPHERS:
            raise PasswordError(f"{self.cipher} is not one of {', '.join(CIPHERS)}")
        if self.key_length not in KEY_LENGTHS:
            raise PasswordError(f"a key of {self.key_length} bits is not one of {', '.join(map(str, KEY_LENGTHS))}")
        if not 0 < self.iterations <= MOST_ITERATIONS:
            raise PasswordError(f"{self.iterations} iterations: at most {MOST_ITERATIONS} are possible")

    def encode(self, password: str) -> str:
        """Encrypt a password, each time otherwise."""
        salt, plain = secrets.token_bytes(_SALT_BYTES), password.encode()
        vector = secrets.token_bytes(_BLOCK_BYTES if self.cipher == CBC else _GCM_VECTOR_BYTES)
        key = _key(self.secret, self.key_factory, self.key_length, salt, self.iterations)
        values = {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "keyLength": str(self.key_length),
            "salt": _text(salt),
            "iterations": str(self.iterations),
            "encryptedPassword": _text(_encrypted(self.cipher, key, vector, plain)),
            "passwordLength": str(_length(password)),
            "initializationVector": _text(vector),
        }
        if self.cipher == GCM:
            values["authenticationTagLength"] = str(_GCM_TAG_BITS)
        return ",".join(f"{name}:{value}" for name, value in values.items())

    def decode(self, encoded: str) -> str:
        """Decrypt a password, whatever it was encrypted by; raises PasswordError, also where the secret is another."""
        values = dict(pair.strip().partition(":")[::2] for pair in encoded.split(","))
        try:
            cipher, iterations = _spelled(values["cipherAlgorithm"], CIPHERS), int(values["iterations"])
            key_length, salt = int(values["keyLength"]), _bytes(values["salt"])
            if cipher not in CIPHERS or key_length not in KEY_LENGTHS or not 0 < iterations <= MOST_ITERATIONS:
                raise PasswordError("it is encrypted in a way that is not known here")
            key_factory = _spelled(values["keyFactoryAlgorithm"], KEY_FACTORIES)
            key = _key(self.secret, key_factory, key_length, salt, iterations)
            password = _decrypted(cipher, key, values).decode()
        except PasswordError:
            raise
        except (KeyError, ValueError) as error:
            raise PasswordError("it is not encrypted with this secret, or not encrypted at all") from error
        if str(_length(password)) != values.get("passwordLength"):
            raise PasswordError("it is not encrypted with this secret")
        return password


def _spelled(name: str, known: Iterable[str]) -> str:
    """Return a name as it is known here: Java takes small and large letters for the same."""
    return next((each for each in known if each.lower() == name.lower()), name)


def _key(secret: str, key_factory: str, key_length: int, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(KEY_FACTORIES[key_factory], secret.encode(), salt, iterations, key_length // 8)


def _encrypted(cipher: str, key: bytes, vector: bytes, plain: bytes) -> bytes:
    if cipher == GCM:
        sealed: bytes = _library().aead.AESGCM(key).encrypt(vector, plain, None)
        return sealed
    padding = _BLOCK_BYTES - len(plain) % _BLOCK_BYTES
    encryptor = _cbc(key, vector).encryptor()
    encrypted: bytes = encryptor.update(plain + bytes([padding]) * padding) + encryptor.finalize()
    return encrypted


def _decrypted(cipher: str, key: bytes, values: Mapping[str, str]) -> bytes:
    """Raises KeyError and ValueError for what is not right."""
    vector, encrypted = _bytes(values["initializationVector"]), _bytes(values["encryptedPassword"])
    if cipher == GCM:
        from cryptography.exceptions import InvalidTag

        try:
            opened: bytes = _library().aead.AESGCM(key).decrypt(vector, encrypted, None)
        except InvalidTag:
            raise ValueError("another secret") from None
        return opened
    decryptor = _cbc(key, vector).decryptor()
    plain: bytes = decryptor.update(encrypted) + decryptor.finalize()
    padding = plain[-1:] * (plain[-1] if plain else 0)
    if not 1 <= len(padding) <= _BLOCK_BYTES or not plain.endswith(padding):
        raise ValueError("another secret")
    return plain.removesuffix(padding)


def _cbc(key: bytes, vector: bytes) -> Any:
    ciphers = _library()
    return ciphers.Cipher(ciphers.algorithms.AES(key), ciphers.modes.CBC(vector))


def _library() -> Any:
    try:
        from cryptography.hazmat.primitives import ciphers
        from cryptography.hazmat.primitives.ciphers import aead  # noqa: F401  # an attribute of ciphers from now on
    except ImportError as error:
        raise missing("cryptography", "a password in a dynamic configuration") from error
    return ciphers


def _length(password: str) -> int:
    """As Java counts it."""
    return len(password.encode("utf-16-le")) // 2


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)

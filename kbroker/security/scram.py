"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677) as Kafka speaks them, both sides.

    client-first    n,[a=<saslname>],n=<saslname>,r=<nonce>[,tokenauth=true]
    server-first    r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client-final    c=<base64 of the gs2 header>,r=<nonce>,p=<proof>
    server-final    v=<server signature>

Written on hashlib and hmac, for Kafka differs from the RFC where libraries hold to it: passwords are taken as they are
(no SASLprep), client-first may carry extensions (`tokenauth`), and what is signed is put together anew from the parts.
The proof needs only what is stored: neither the password nor a key derived from it is known to the server.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from kbroker.security import exchange
from kbroker.security.exchange import AuthenticationFailure, Identity, shown

HASHES = {exchange.SCRAM_SHA_256: "sha256", exchange.SCRAM_SHA_512: "sha512"}
MINIMUM_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
"""A server that asks for more would keep its clients busy for seconds."""
LONGEST_MESSAGE = 1 << 14
"""Of what a peer says who has not proved anything: some hundred bytes are usual."""
TOKEN_AUTHENTICATION = "tokenauth"

_NAME = exchange.SASL_NAME
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]++"
_BASE64 = r"[a-zA-Z0-9/+]++=*+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]++"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?:m={_VALUE},)?n=(?P<user>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>(?:,[a-zA-Z]+={_VALUE})*)"
)
_SERVER_FIRST = re.compile(
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})"
    rf"(?:,[a-zA-Z]+={_VALUE})*"
)
_CLIENT_FINAL = re.compile(
    rf"c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?:,[a-zA-Z]+={_VALUE})*,p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64}))(?:,[a-zA-Z]+={_VALUE})*")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is stored of a password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class KnownUser:
    """Whom a credential stands for: the user itself, or the owner of a delegation token."""

    credential: ScramCredential
    identity: Identity


Lookup = Callable[[str, bool], KnownUser | Awaitable[KnownUser | None] | None]
"""(user or token id, whether it is a token) -> who that is, None when nobody."""


# -- arithmetic -------------------------------------------------------------------------------------------------------


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Derive the key of a password: milliseconds of work, done outside of the interpreter's lock."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return what is stored of a salted password."""
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(HASHES[mechanism], client_key).digest()
    return ScramCredential(salt, stored_key, _hmac(mechanism, salted, b"Server Key"), iterations)


def _hmac(mechanism: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, HASHES[mechanism])


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


# -- what stands in ZooKeeper -----------------------------------------------------------------------------------------


def encode_credential(credential: ScramCredential) -> str:
    """Return the text under /config/users/<user>: salt=…,stored_key=…,server_key=…,iterations=…"""
    parts = ("salt", credential.salt), ("stored_key", credential.stored_key), ("server_key", credential.server_key)
    fields = [f"{name}={base64.b64encode(value).decode()}" for name, value in parts]
    return ",".join((*fields, f"iterations={credential.iterations}"))


def decode_credential(text: str) -> ScramCredential:
    """Read that text; raises ValueError, which does not repeat it."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if fields.keys() != {"salt", "stored_key", "server_key", "iterations"} or text.count(",") != 3:
        raise ValueError("a SCRAM credential has salt, stored_key, server_key and iterations, each once")
    try:
        salt, stored, server = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored, server, int(fields["iterations"]))
    except ValueError:
        raise ValueError("a SCRAM credential with a part that is no base64, or iterations that are no number") from None


# -- the server -------------------------------------------------------------------------------------------------------


class ScramServer:
    """Proves a client against what is stored of its password."""

    def __init__(self, mechanism: str, lookup: Lookup, nonce: str) -> None:
        """`nonce`: this server's part of it, random and never used twice."""
        self.identity: Identity | None = None
        self._mechanism = mechanism
        self._lookup = lookup
        self._server_nonce = nonce
        self._nonce = ""
        self._user: KnownUser | None = None
        self._name = ""
        self._signed = ""

    def step(self, token: bytes) -> bytes | Awaitable[bytes]:
        """Answer client-first, then client-final."""
        if self._nonce:
            return self._final(_text(token))
        match = _CLIENT_FIRST.fullmatch(_text(token))
        if match is None:
            raise AuthenticationFailure("a client-first message that is none of SCRAM's")
        extensions = _extensions(match["extensions"])
        found = self._lookup(_unescape(match["user"]), extensions.get(TOKEN_AUTHENTICATION, "").lower() == "true")
        if isinstance(found, Awaitable):
            return self._first_later(match, found)
        return self._first(match, found)

    async def _first_later(self, match: re.Match[str], found: Awaitable[KnownUser | None]) -> bytes:
        return self._first(match, await found)

    def _first(self, match: re.Match[str], user: KnownUser | None) -> bytes:
        self._name = _unescape(match["user"])
        if user is None:
            raise AuthenticationFailure(f"there is no {self._mechanism} credential of user {shown(self._name)}")
        if match["authzid"] and _unescape(match["authzid"]) != self._name:
            text = f"user {shown(self._name)} asked to be {shown(_unescape(match['authzid']))}"
            raise AuthenticationFailure(text, exchange.OTHER_AUTHORIZATION_ID)
        credential = user.credential
        if credential.iterations < MINIMUM_ITERATIONS:
            raise AuthenticationFailure(
                f"the credential of user {shown(self._name)} has {credential.iterations} iterations: "
                f"at least {MINIMUM_ITERATIONS} are needed"
            )
        self._user = user
        self._nonce = match["nonce"] + self._server_nonce
        answer = f"r={self._nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        self._signed = f"n={match['user']},r={match['nonce']}{match['extensions']},{answer}"
        return answer.encode()

    def _final(self, text: str) -> bytes:
        if self.identity is not None:
            raise AuthenticationFailure("a token after the last one")
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise AuthenticationFailure("a client-final message that is none of SCRAM's")
        # Kafka asks for no more, and librdkafka before 2.6.1 puts its own nonce before it once more.
        if not match["nonce"].endswith(self._nonce):
            raise AuthenticationFailure(f"another nonce in the proof of user {shown(self._name)}")
        assert self._user is not None
        credential = self._user.credential
        signed = f"{self._signed},c={match['binding']},r={match['nonce']}".encode()
        signature = _hmac(self._mechanism, credential.stored_key, signed)
        try:
            client_key = _xor(signature, base64.b64decode(match["proof"], validate=True))
        except ValueError:
            raise AuthenticationFailure(f"the proof of user {shown(self._name)} has a wrong size") from None
        proved = hashlib.new(HASHES[self._mechanism], client_key).digest()
        if not hmac.compare_digest(proved, credential.stored_key):
            raise AuthenticationFailure(f"wrong password of user {shown(self._name)}")
        self.identity = self._user.identity
        return b"v=" + base64.b64encode(_hmac(self._mechanism, credential.server_key, signed))


# -- the client -------------------------------------------------------------------------------------------------------


class ScramClient:
    """Proves to know a password without telling it, and that the server knows it, too."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, extensions: Mapping[str, str] | None = None
    ) -> None:
        self.mechanism = mechanism
        self.user = user
        self.is_complete = False
        self._password = password
        self._nonce = nonce
        more = "".join(f",{name}={value}" for name, value in (extensions or {}).items())
        self._first_bare = f"n={_escape(user)},r={nonce}{more}"
        self._signature: bytes | None = None
        """What the server has to send at last."""

    def first(self) -> bytes:
        """Return client-first."""
        return f"n,,{self._first_bare}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        """Return client-final, then None when the server has proved itself."""
        if self._signature is None:
            return self._final(_text(challenge))
        match = _SERVER_FINAL.fullmatch(_text(challenge))
        if match is None:
            raise AuthenticationFailure("the server's last message is none of SCRAM's")
        if match["error"]:
            raise AuthenticationFailure(f"the server refused: {match['error']}")
        if not hmac.compare_digest(_decoded(match["signature"]), self._signature):
            raise AuthenticationFailure("the server does not know the password: it may be another one than it says")
        self.is_complete = True
        return None

    def _final(self, text: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationFailure("the server's first message is none of SCRAM's")
        if not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise AuthenticationFailure("the server's nonce does not continue ours")
        iterations = int(match["iterations"])
        if not MINIMUM_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise AuthenticationFailure(
                f"the server asks for {iterations} iterations: {MINIMUM_ITERATIONS} to {MOST_ITERATIONS} are accepted"
            )
        without_proof = f"c=biws,r={match['nonce']}"
        signed = f"{self._first_bare},{text},{without_proof}".encode()
        salted = salted_password(self.mechanism, self._password, _decoded(match["salt"]), iterations)
        client_key = _hmac(self.mechanism, salted, b"Client Key")
        stored_key = hashlib.new(HASHES[self.mechanism], client_key).digest()
        proof = _xor(client_key, _hmac(self.mechanism, stored_key, signed))
        self._signature = _hmac(self.mechanism, _hmac(self.mechanism, salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


# -- text -------------------------------------------------------------------------------------------------------------


def _text(token: bytes) -> str:
    if len(token) > LONGEST_MESSAGE:
        raise AuthenticationFailure(f"a SCRAM message of {len(token)} bytes: {LONGEST_MESSAGE} are allowed")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailure("a SCRAM message that is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise AuthenticationFailure("a SCRAM message with a part that is no base64") from None


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _extensions(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split(",") if part)

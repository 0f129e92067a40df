"""DIGEST-MD5 (RFC 2831) from the client's side, as ZooKeeper's servers ask for it (pure).

client ──(nothing)──────────────────────────────────────────────────────────▶ server
       ◀─ realm="zk-sasl-md5",nonce="…",charset=utf-8,algorithm=md5-sess ───
       ── username="…",realm="…",nonce="…",cnonce="…",…,response=<32 hex> ──▶
       ◀─ rspauth=<32 hex>    the server knows the password, too ───────────
"""

from __future__ import annotations

import hashlib
import hmac
import re

_DIRECTIVE = re.compile(r'\s*([a-zA-Z0-9-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)')
_COUNT = "00000001"


class DigestError(ValueError):
    """The server's message is none of DIGEST-MD5, or it does not know the password."""


class DigestMd5:
    """One log-in. `cnonce`: random text that nobody can guess."""

    def __init__(self, username: str, password: str, cnonce: str, service: str, host: str) -> None:
        self._username = username
        self._password = password
        self._cnonce = cnonce
        self._uri = f"{service}/{host}"
        self._expected = ""

    def answer(self, challenge: bytes) -> bytes:
        """Return what answers the server's challenge; raises DigestError."""
        asked = _directives(challenge)
        nonce, realm = asked.get("nonce"), asked.get("realm", "")
        if not nonce or asked.get("algorithm") != "md5-sess" or "auth" not in asked.get("qop", "auth").split(","):
            raise DigestError("its challenge is none of DIGEST-MD5")
        first = _hash(b":".join(map(_bytes, (self._username, realm, self._password))))
        secret = _hash(first + f":{nonce}:{self._cnonce}".encode()).hex()
        middle = f"{nonce}:{_COUNT}:{self._cnonce}:auth"
        self._expected = _proof(secret, middle, f":{self._uri}")
        return (
            f"charset=utf-8,username={_quoted(self._username)},realm={_quoted(realm)},nonce={_quoted(nonce)},"
            f"nc={_COUNT},cnonce={_quoted(self._cnonce)},digest-uri={_quoted(self._uri)},maxbuf=65536,"
            f"response={_proof(secret, middle, f'AUTHENTICATE:{self._uri}')},qop=auth"
        ).encode()

    def check(self, last: bytes) -> None:
        """See that the server knows the password; raises DigestError."""
        shown = _directives(last).get("rspauth", "")
        if not self._expected or not hmac.compare_digest(shown.encode(), self._expected.encode()):
            raise DigestError("it does not know the password itself")


def _directives(message: bytes) -> dict[str, str]:
    """Raises DigestError."""
    found: dict[str, str] = {}
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise DigestError("its message is no text") from None
    place = 0
    while place < len(text):
        match = _DIRECTIVE.match(text, place)
        if match is None:
            raise DigestError("its message is none of DIGEST-MD5")
        name, quoted, plain = match.groups()
        found.setdefault(name.lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        place = match.end()
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _bytes(text: str) -> bytes:
    """As the RFC wants it: ISO 8859-1 where that holds all of the text."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _hash(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _proof(secret: str, middle: str, what: str) -> str:
    return _hash(f"{secret}:{middle}:{_hash(what.encode()).hex()}".encode()).hex()

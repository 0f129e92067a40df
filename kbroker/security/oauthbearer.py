"""SASL/OAUTHBEARER (RFC 7628): one message with a token, both sides.

    client-first    n,[a=<name>],^A auth=Bearer <token> ^A {<key>=<value> ^A} ^A          ^A is the byte 1, no blanks

A token that is not accepted is answered by a JSON object first; the client acknowledges that with one ^A, and only
then is it refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kbroker.security import exchange
from kbroker.security.exchange import AuthenticationFailure, Identity, shown

MOST_PAIRS = 100
_PAIR = r"[A-Za-z]++=[\x21-\x7e \t\r\n]++\x01"
_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{exchange.SASL_NAME}))?,\x01(?P<pairs>(?:{_PAIR}){{0,{MOST_PAIRS}}})\x01")
_BEARER = re.compile(r"\w++ ++(?P<token>[-_~+/.A-Za-z0-9]++=*+)")
ACKNOWLEDGEMENT = b"\x01"


@dataclass(frozen=True, slots=True)
class ValidToken:
    """Whom a token stands for, and until when."""

    principal: str
    expires_at_ms: int


class TokenRefused(Exception):
    """A token that is not accepted. The text is for the log, and does not repeat the token."""

    def __init__(self, reason: str, missing_scope: tuple[str, ...] | None = None) -> None:
        super().__init__(reason)
        self.missing_scope = missing_scope

    @property
    def answer(self) -> str:
        """What the client is told."""
        if self.missing_scope is None:
            return '{"status":"invalid_token"}'
        scope = json.dumps(f"[{', '.join(self.missing_scope)}]")
        return f'{{"status":"insufficient_scope", "scope":{scope}}}'


Validator = Callable[[str], ValidToken]
"""Returns whom a token stands for; raises TokenRefused."""


class OAuthBearerServer:
    """Has the token validated."""

    def __init__(self, validate: Validator) -> None:
        self.identity: Identity | None = None
        self._validate = validate
        self._refused: TokenRefused | None = None

    def step(self, token: bytes) -> bytes:
        """Return an empty answer for a token that holds, the JSON object for one that does not."""
        if self._refused is not None:
            raise AuthenticationFailure(str(self._refused), self._refused.answer)
        try:
            match = _FIRST.fullmatch(token.decode())
        except UnicodeDecodeError:
            match = None
        if match is None:
            raise AuthenticationFailure("a first message that is none of OAUTHBEARER's")
        pairs = dict(pair.partition("=")[::2] for pair in match["pairs"].split("\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None or not pairs["auth"].lower().startswith("bearer "):
            raise AuthenticationFailure("a first message of OAUTHBEARER without a bearer token")
        try:
            valid = self._validate(bearer["token"])
        except TokenRefused as refused:
            self._refused = refused
            return refused.answer.encode()
        self._check_authorization_id(match["authzid"], valid.principal)
        self.identity = Identity(valid.principal, expires_at_ms=valid.expires_at_ms)
        return b""

    @staticmethod
    def _check_authorization_id(given: str | None, principal: str) -> None:
        wanted = (given or "").replace("=2C", ",").replace("=3D", "=")
        if wanted not in ("", principal):
            told = (
                f"Authentication failed: Client requested an authorization id ({wanted}) that is different from the "
                f"token's principal name ({principal})"
            )
            raise AuthenticationFailure(f"token of {shown(principal)} for {shown(wanted)}", told)


class OAuthBearerClient:
    """Shows a token."""

    mechanism = exchange.OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        self.user = ""
        self.is_complete = False
        self._refused = ""
        pairs = {"auth": f"Bearer {token}", **(extensions or {})}
        self._first = "n,,\x01" + "".join(f"{key}={value}\x01" for key, value in pairs.items()) + "\x01"
        if not _FIRST.fullmatch(self._first):
            raise AuthenticationFailure("the token, or an extension, holds what cannot be sent")

    def first(self) -> bytes:
        """Return the only token that says something."""
        return self._first.encode()

    def step(self, challenge: bytes) -> bytes | None:
        """An empty answer is a yes; a JSON object is a no, which is acknowledged to hear it as an error."""
        if not challenge:
            self.is_complete = True
            return None
        if self._refused:
            raise AuthenticationFailure(f"the token is refused: {self._refused}")
        self._refused = challenge.decode(errors="replace")
        return ACKNOWLEDGEMENT

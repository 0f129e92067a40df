"""SASL/PLAIN (RFC 4616): one token, `authzid NUL user NUL password`. Only for a line that nobody else reads."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from kbroker.security import exchange
from kbroker.security.exchange import AuthenticationFailure, Identity, shown

WRONG = "Authentication failed: Invalid username or password"


class PlainServer:
    """Knows its users and their passwords from the listener's configuration."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.identity: Identity | None = None
        self._passwords = passwords

    def step(self, token: bytes) -> bytes:
        """Check user and password; the answer is empty."""
        try:
            given = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailure("a PLAIN token that is not UTF-8", WRONG) from None
        count = given.count("\0") + 1
        if count != 3:
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}"
            raise AuthenticationFailure(text, text)
        authorization_id, user, password = given.split("\0")
        for name, value in (("username", user), ("password", password)):
            if not value:
                text = f"Authentication failed: {name} not specified"
                raise AuthenticationFailure(text, text)
        expected = self._passwords.get(user)
        # The comparison is made for unknown users, too: they take as long as known ones.
        is_right = hmac.compare_digest(password.encode(), ("" if expected is None else expected).encode())
        if expected is None or not is_right:
            raise AuthenticationFailure(f"wrong password or unknown user {shown(user)}", WRONG)
        if authorization_id not in ("", user):
            text = f"user {shown(user)} asked to be {shown(authorization_id)}"
            raise AuthenticationFailure(text, exchange.OTHER_AUTHORIZATION_ID)
        self.identity = Identity(user)
        return b""


class PlainClient:
    """Sends user and password in one token."""

    mechanism = exchange.PLAIN

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self.is_complete = False
        self._password = password

    def first(self) -> bytes:
        """Return the token."""
        return f"\0{self.user}\0{self._password}".encode()

    def step(self, challenge: bytes) -> None:
        """The server's answer is empty."""
        self.is_complete = True

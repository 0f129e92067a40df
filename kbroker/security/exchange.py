"""What all SASL mechanisms have in common: tokens go to and fro until the server knows who the client is, or refuses.

    client: first() -> token     server: step(token) -> challenge     client: step(challenge) -> token     …

A server's exchange is over when it has an `identity`, a client's when `is_complete`. Neither does input or output, and
neither keeps a clock: what is random or depends on the time is passed in.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, GSSAPI = (
    "PLAIN",
    "SCRAM-SHA-256",
    "SCRAM-SHA-512",
    "OAUTHBEARER",
    "GSSAPI",
)
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""Those that there are; GSSAPI (Kerberos) is not among them."""

SASL_NAME = r"(?=[^,])[\x01-\x2b\x2d-\x3c\x3e-\x7f]*+(?:=(?:2C|3D)[\x01-\x2b\x2d-\x3c\x3e-\x7f]*+)*+"
"""A pattern of names (RFC 5802), before a comma. Nothing is tried twice: strangers choose how long they are."""
LONGEST_SHOWN = 80
OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"
"""What a client is told that wants to be somebody else than it proves to be."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who has logged in."""

    name: str
    """Without `User:`."""
    is_token: bool = False
    """Whether it was by a delegation token: such a session may not ask for tokens."""
    expires_at_ms: int | None = None
    """When the credential ends, in milliseconds since 1970; None: never."""


class AuthenticationFailure(Exception):
    """The peer has not proved who it is.

    `told` is all that it learns (None: the general text that names the mechanism only), the exception's text is for
    the log. Neither holds a password or a token.
    """

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told


def shown(name: str) -> str:
    """Return a name that a peer has sent as it may stand in a log line."""
    return repr(name if len(name) <= LONGEST_SHOWN else name[:LONGEST_SHOWN] + "…")


class ServerExchange(Protocol):
    """The server's side of one log-in."""

    identity: Identity | None
    """Set when the client has proved who it is."""

    def step(self, token: bytes) -> bytes | Awaitable[bytes]:
        """Return the answer to the client's token; raises AuthenticationFailure."""
        ...


class ClientExchange(Protocol):
    """The client's side of one log-in."""

    mechanism: str
    user: str
    """For errors; empty where the mechanism does not say."""
    is_complete: bool
    """Whether the server has said all that it has to."""

    def first(self) -> bytes:
        """Return the first token."""
        ...

    def step(self, challenge: bytes) -> bytes | None:
        """Return the answer to the server's challenge, None when there is none; raises AuthenticationFailure.

        May take long (a key is derived from the password): not for an event loop.
        """
        ...

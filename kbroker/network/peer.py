"""Who is at the other end of a connection, and what is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.security.acls import ANONYMOUS
from kbroker.security.authorizer import EVERYTHING

if TYPE_CHECKING:
    from kbroker.network.server import Listener
    from kbroker.security.authorizer import Everything


class Peer:
    """A client, or another broker."""

    __slots__ = (
        "authority",
        "client_software_name",
        "client_software_version",
        "host",
        "is_by_token",
        "listener",
        "port",
        "principal",
        "security_protocol",
    )

    def __init__(self, listener: Listener, host: str, port: int) -> None:
        self.listener = listener.name
        self.security_protocol = listener.security_protocol
        self.host, self.port = host, port
        self.principal = ANONYMOUS
        """Whoever logged in, or whose certificate it is: `User:` and the name."""
        self.authority: Everything = EVERYTHING
        """What the principal may do; dispatch keeps it up to date."""
        self.client_software_name = "unknown"
        self.client_software_version = "unknown"
        self.is_by_token = False
        """Whether a delegation token was the password: then no tokens are given out."""

    def __repr__(self) -> str:
        return f"{self.host}:{self.port} on {self.listener}"

"""What happens on a new connection before its first request: the client logs in, where its settings say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.client.connection import Connection
    from kbroker.client.plain_connection import PlainConnection
    from kbroker.client.security import Security


async def authenticate(connection: Connection, security: Security) -> None:
    """Log in; raises LoginFailed (no use in trying again) or OSError. Whoever waits limits the time."""
    assert not security.protocol.has_sasl


def authenticate_plainly(connection: PlainConnection, security: Security) -> None:
    """Log in over a blocking connection, within its time-out; raises what `authenticate` does."""
    assert not security.protocol.has_sasl

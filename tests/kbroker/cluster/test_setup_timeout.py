"""The time-out of connections that are set up grows while they fail."""

from typing import Any

import pytest

from kbroker.client.connection import Connection
from kbroker.client.security import Security
from kbroker.cluster.setup_timeout import ConnectionSetup

ENCRYPTED = Security(security_protocol="SSL")


async def test_each_failure_doubles_the_timeout_up_to_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    silent = True

    async def open_connection(host: str, port: int, *, timeout: float, client_id: str, security: Security) -> Any:
        assert security is ENCRYPTED
        given.append((host, port, client_id, timeout))
        if silent:
            raise TimeoutError

    monkeypatch.setattr(Connection, "open", open_connection)
    timeout = ConnectionSetup(1000, 3000, ENCRYPTED).of_peer()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await timeout.connect(("h", 1), client_id="me")
    silent = False
    await timeout.connect(("h", 1), client_id="me")
    await timeout.connect(("h", 1), client_id="me")
    assert given == [("h", 1, "me", seconds) for seconds in (1, 2, 3, 3, 1)]


def test_the_longest_is_never_below_the_first() -> None:
    assert ConnectionSetup(1000, 10).of_peer().seconds == 1

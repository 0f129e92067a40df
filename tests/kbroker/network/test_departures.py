"""Who leaves while a request is in work is noticed, whatever was sent behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.network import departures
from kbroker.network.connection import Connection
from kbroker.network.departures import Departures
from kbroker.network.dispatch import PENDING
from tests.kbroker.network.serving import connected, frame, serving, until


class Client:
    """A connection that is looked at."""

    def __init__(self) -> None:
        self.is_paused = True
        self.has_left = False
        self.looked = 0

    def close_if_left(self) -> bool:
        self.looked += 1
        return self.has_left


def test_who_is_not_read_from_is_looked_at_until_that_changes() -> None:
    looks: list[Callable[[], None]] = []
    watching = Departures(lambda seconds, look: looks.append(look))
    stays, leaves, is_served = clients = [Client() for _ in range(3)]
    for each in clients * 2:
        watching.watch(each)
    is_served.is_paused = False
    for _ in range(2):
        (look,) = looks
        looks.clear()
        look()
        leaves.has_left = True
    assert [each.looked for each in clients] == [2, 2, 0]
    stays.is_paused = False
    looks.pop()()
    assert not looks
    watching.watch(stays)
    assert len(looks) == 1


@pytest.mark.parametrize("behind", [b"", frame(b"next"), frame(bytes(200_000))])
async def test_what_nobody_waits_for_ends_though_more_was_sent_behind_it(
    monkeypatch: pytest.MonkeyPatch, behind: bytes
) -> None:
    monkeypatch.setattr(departures, "LOOK_S", 0.01)
    answers: list[asyncio.Future[Any]] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        answers.append(asyncio.get_running_loop().create_future())
        connection.cancel_when_closed(answers[-1])
        return PENDING

    async with serving(dispatch) as server, connected(server) as client:
        client.send(frame(b"first"))
        await until(lambda: len(answers) == 1)
        client.send(behind)
        await asyncio.sleep(0.03)
        assert not answers[0].done()
        await client.close()
        await until(lambda: not server.connections)
        assert answers[0].cancelled()
        assert len(answers) == 1


async def test_what_begins_to_wait_for_nobody_ends_at_once() -> None:
    served: list[Connection] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        served.append(connection)
        return PENDING

    async with serving(dispatch) as server, connected(server) as client:
        client.send(frame(b"first"))
        await until(lambda: len(served) == 1)
        served[0].close("enough")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        served[0].cancel_when_closed(answer)
        assert answer.cancelled()

"""Whose requests take long wait for each other, and nobody else for them. The clock here goes on by what they take."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from kbroker.network.connection import Connection
from kbroker.network.server import Server
from kbroker.network.shares import DEAR_S, DEAR_TURN_S, MOST_OWED_S, Shares, Standing
from tests.kbroker.network.serving import Client, connected, frame, serving, until

MANY = 40
PIPELINED = 5
CHEAP, DEAR = b"cheap", b"dear"


class Clock:
    """Goes on when somebody works; notes between which turns of the loop."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.turns = 0
        self.served: list[tuple[bytes, int]] = []

    def __call__(self) -> float:
        return self.now

    def dispatch(self, connection: Connection, request: memoryview) -> list[bytes]:
        """Answer after what takes long, or not."""
        self.served.append((bytes(request), self.turns))
        self.now += DEAR_TURN_S * 1.1 if request[:4] == DEAR else DEAR_S / 10
        return [frame(bytes(request))]

    def in_one_turn(self, what: bytes) -> int:
        """Return how many of a kind were served at most between two turns."""
        turns = [turn for request, turn in self.served if request == what]
        return max(map(turns.count, set(turns)))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in ("shares", "connection", "server"):
        monkeypatch.setattr(f"kbroker.network.{module}.monotonic", found)
    monkeypatch.setattr("kbroker.network.connection.thread_time", found)
    return found


@contextlib.asynccontextmanager
async def crowd(clock: Clock) -> AsyncIterator[tuple[Server, list[Client]]]:
    """A server, many clients, and somebody who counts the turns of the loop."""
    async with serving(clock.dispatch) as server, contextlib.AsyncExitStack() as stack:

        def count() -> None:
            clock.turns += 1
            counting[0] = server.loop.call_soon(count)

        counting = [server.loop.call_soon(count)]
        clients = [await stack.enter_async_context(connected(server)) for _ in range(MANY)]
        await until(lambda: len(server.connections) == MANY)
        yield server, clients
        counting[0].cancel()


async def received(clients: list[Client], answer: bytes, times: int = 1) -> None:
    for client in clients:
        for _ in range(times):
            assert await client.receive() == answer


async def test_many_whose_requests_take_long_are_served_one_after_the_other_and_others_between_them(
    clock: Clock,
) -> None:
    async with crowd(clock) as (_, (honest, *others)):
        honest.send(frame(CHEAP))
        await received([honest], CHEAP)
        for client in others:
            client.send(frame(DEAR) * PIPELINED)
        for _ in range(10):
            before = len(clock.served)
            honest.send(frame(CHEAP))
            await received([honest], CHEAP)
            assert len(clock.served) - before < MANY - 1, "it does not wait for a request of each"
        await received(others, DEAR, PIPELINED)
    assert clock.in_one_turn(DEAR) <= 2, "of newcomers one, and one of those who are known"
    assert [request for request, _ in clock.served].count(DEAR) == PIPELINED * (MANY - 1)


async def test_whose_answers_come_later_wait_in_line_all_the_same(clock: Clock) -> None:
    async with crowd(clock) as (server, clients):
        for client in clients:
            client.send(frame(DEAR))
        await received(clients, DEAR)
        clock.served.clear()
        connections = list(server.connections)
        for connection in connections:
            connection._rest = bytearray(frame(DEAR))
        for connection in connections:
            connection.resume()  # as after an answer that came later
            connection.resume()
        await received(clients, DEAR)
    assert clock.in_one_turn(DEAR) == 1
    assert len(clock.served) == MANY, "each once"


async def test_who_leaves_while_it_waits_in_line_is_passed_over(clock: Clock) -> None:
    async with crowd(clock) as (server, clients):
        for client in clients:
            client.send(frame(DEAR) * PIPELINED)
        await until(lambda: len(clock.served) > MANY)
        for connection in list(server.connections)[1:]:
            connection.close("it leaves")
        await received(clients[:1], DEAR, PIPELINED)


def known(loop: asyncio.AbstractEventLoop) -> tuple[Shares, Standing]:
    shares = Shares(loop)
    standing = Standing(shares)
    standing.weigh(DEAR_S / 2)
    assert standing.share is None
    return shares, standing


async def test_a_newcomer_is_known_by_its_first_request() -> None:
    shares, _ = known(asyncio.get_running_loop())
    newcomer = Standing(shares)
    assert newcomer.share is shares.newcomers
    newcomer.weigh(2 * DEAR_S)
    assert newcomer.share is shares.dear


async def test_whom_the_system_kept_waiting_does_not_stand_with_those_who_are_dear() -> None:
    shares, standing = known(asyncio.get_running_loop())
    standing.suspect(1.5 * DEAR_S)
    assert standing.share is shares.newcomers
    standing.weigh(DEAR_S / 2)
    assert standing.share is shares.newcomers
    standing.weigh(DEAR_S / 2)
    assert standing.share is None


async def test_a_quick_request_between_does_not_make_good_a_dear_one() -> None:
    shares, standing = known(asyncio.get_running_loop())
    standing.suspect(1)
    standing.weigh(1)
    owed = round(MOST_OWED_S / DEAR_S)
    for _ in range(owed - 1):
        standing.weigh(0)
        assert standing.share is shares.dear
    standing.weigh(0)
    assert standing.share is None


async def test_a_stranger_stays_one_until_it_has_logged_in() -> None:
    shares = Shares(asyncio.get_running_loop())
    standing = Standing(shares)
    standing.log_in_first()
    standing.weigh(0)
    assert standing.share is shares.strangers
    standing.logged_in()
    assert standing.share is shares.newcomers

"""For how long a connection is not read."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.network.connection import Connection
from kbroker.network.dispatch import PENDING, LateAnswer
from kbroker.network.muting import CLOCK_S, Muting
from tests.kbroker.network.serving import connected, frame, serving, until


def test_a_longer_time_holds_before_a_shorter_one_and_both_end() -> None:
    now = 100.0
    planned: list[Any] = []

    def call_at(when: float, callback: Any) -> Any:
        planned.append(SimpleNamespace(when=when, callback=callback, cancel=lambda: planned.pop(0)))
        return planned[-1]

    def go_on() -> None:
        """Read it again."""

    loop: Any = SimpleNamespace(time=lambda: now, call_at=call_at)
    muting = Muting(loop, go_on)
    assert not muting.is_on()
    for seconds in (5, 1):
        muting.extend(seconds)
        assert [(each.when, each.callback) for each in planned] == [(105, go_on)], "what was told before is kept"
    assert muting.is_on()
    now = 105 - CLOCK_S / 2
    assert not muting.is_on(), "timers may be early by as much"
    now = 100.0
    assert not muting.is_on(), "once it is over it is over"
    muting.cancel()
    assert not planned


def mute_if_slow(connection: Connection, request: memoryview) -> list[bytes]:
    """Answer; whoever is slow is not read for a minute."""
    if bytes(request[:4]) == b"slow":
        connection.mute(60)
    return [frame(bytes(request[:4]))]


async def test_a_connection_that_is_not_read_is_idle_once_its_answer_is_out() -> None:
    """Its client may have gone, as nobody would notice."""
    async with serving(mute_if_slow, max_idle_ms=100) as server, connected(server) as client:
        client.send(frame(b"slow"))
        assert await client.receive() == b"slow"
        await until(lambda: not server.connections)


async def test_a_server_that_stops_does_not_wait_for_those_that_are_not_read() -> None:
    async with serving(mute_if_slow) as server, connected(server) as client:
        client.send(frame(b"slow") + frame(b"next"))
        assert await client.receive() == b"slow"
        async with asyncio.timeout(20):
            await server.stop(drain_timeout=60)


@pytest.mark.parametrize("size", [4, 20_000])
@pytest.mark.parametrize("how", ["now", "later", "late"])
async def test_what_was_answered_holds_no_bytes_while_its_connection_is_not_read(size: int, how: str) -> None:
    """Others would wait with it where queued.max.request.bytes is set."""

    def dispatch(connection: Connection, request: memoryview) -> Any:
        answer, later = mute_if_slow(connection, request), asyncio.get_running_loop().call_soon
        if how == "now":
            return answer
        if how == "later":
            later(connection.answer, answer)
            return PENDING
        late = LateAnswer()
        later(connection.answer_late, late, answer)
        return late

    async with serving(dispatch, queued_max_bytes=10) as server, connected(server) as slow, connected(server) as quick:
        slow.send(frame(b"slow".ljust(size)) + frame(b"next"))
        assert await slow.receive() == b"slow"
        quick.send(frame(b"good".ljust(size)))
        assert await quick.receive() == b"good"
        await until(lambda: not server.bytes_in_flight)


async def test_a_frame_that_waits_until_its_connection_is_read_again_holds_its_bytes() -> None:
    served: list[bytes] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        served.append(bytes(request))
        late = LateAnswer()
        if len(served) == 1:
            asyncio.get_running_loop().call_later(0.1, connection.mute, 3_600)
            asyncio.get_running_loop().call_later(0.1, connection.answer_late, late, [frame(b"done")])
            return late
        return [frame(b"next")]

    async with serving(dispatch, queued_max_bytes=1 << 20) as server, connected(server) as client:
        client.send(frame(b"\0\0 slow") + frame(b"\0\3 next"))
        assert await client.receive() == b"done"
        assert (len(served), server.bytes_in_flight) == (1, 7)
        (connection,) = server.connections
        assert connection._muting is not None
        connection._muting.until = 0.0  # an hour later
        connection._go_on()
        assert await client.receive() == b"next"
        await until(lambda: not server.bytes_in_flight)


@pytest.mark.parametrize("is_closed", [False, True])
async def test_nothing_is_planned_for_a_connection_that_has_ended(
    is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be held for as long: for hours, if its client has used very much."""
    loop, planned = asyncio.get_running_loop(), []

    def call_at(*arguments: Any, **others: Any) -> asyncio.TimerHandle:
        planned.append(timer := type(loop).call_at(loop, *arguments, **others))
        return timer

    def dispatch(connection: Connection, request: memoryview) -> Any:
        if is_closed:
            connection.close("its client has gone")
        connection.mute(10_000)
        return None if is_closed else [frame(b"done")]

    monkeypatch.setattr(loop, "call_at", call_at)
    async with serving(dispatch) as server, connected(server) as client:
        client.send(frame(b"slow"))
        if not is_closed:
            assert await client.receive() == b"done"
            assert [timer for timer in planned if timer.when() > loop.time() + 1_000]
            next(iter(server.connections)).close("its client has gone")
        await until(lambda: not server.connections)
        assert all(timer.cancelled() for timer in planned if timer.when() > loop.time() + 1_000)

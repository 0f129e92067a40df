"""Answers that nobody reads take so much memory and no more; who reads slowly is not closed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from kbroker.network.unread import MOST_HASTE, PATIENCE_S, Unread
from tests.kbroker.network.serving import connected, frame, serving, until


class Reader:
    """A connection whose client read something so many seconds ago."""

    def __init__(self, unread: Unread, ago_s: float) -> None:
        self.last_active = monotonic() - ago_s
        self.closed = ""
        self._unread = unread

    def close(self, reason: str, level: int = 0) -> None:
        self.closed = reason
        self._unread.is_out(self)


def test_those_that_have_read_nothing_for_longest_are_closed_when_all_is_too_much() -> None:
    looks: list[Callable[[], None]] = []
    unread = Unread(lambda after, look: looks.append(look), most_bytes=1000)
    readers = [Reader(unread, ago_s) for ago_s in (PATIENCE_S + 1, 0, PATIENCE_S + 3, PATIENCE_S + 2)]
    waiting = readers[:3]
    for reader in waiting:
        ago = reader.last_active
        unread.waits(reader, [bytes(200), memoryview(bytes(100))])
        reader.last_active = ago
    assert (unread.bytes, [bool(each.closed) for each in readers]) == (900, [False] * 4)
    unread.waits(readers[3], [bytes(300)])
    assert [bool(each.closed) for each in readers] == [False, False, True, False]
    assert "300 bytes" in readers[2].closed
    unread.is_out(readers[0])
    assert unread.bytes == 600
    unread.waits(readers[0], [bytes(2000)])
    assert [bool(each.closed) for each in readers] == [False, False, True, False], "these read, or have just begun to"
    assert (unread.bytes, len(looks)) == (2600, 1)
    readers[0].last_active = monotonic() - PATIENCE_S - 1
    looks.pop()()
    assert [bool(each.closed) for each in readers] == [True, False, True, False], "all came at once, and read nothing"
    assert (unread.bytes, looks) == (600, [])


def test_the_more_waits_the_less_patience_there_is() -> None:
    unread = Unread(lambda *_: None, most_bytes=1000)
    slow, slower = readers = [Reader(unread, 0), Reader(unread, 0)]
    unread.waits(slow, [bytes(900)])
    slow.last_active -= PATIENCE_S / 2
    unread.waits(Reader(unread, 0), [bytes(900)])
    assert [bool(each.closed) for each in readers] == [False, False]
    unread.waits(slower, [bytes(900)])
    assert [bool(each.closed) for each in readers] == [True, False]
    slower.last_active -= PATIENCE_S / (MOST_HASTE + 1)
    unread.waits(Reader(unread, 0), [bytes(90_000)])
    assert [bool(each.closed) for each in readers] == [True, False], "whoever reads at all is given some time"


async def test_a_connection_that_reads_nothing_is_closed_and_one_that_reads_gets_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbroker.network.unread.PATIENCE_S", 0.05)
    answer = bytes(8 << 20)

    def dispatch(connection: Any, request: memoryview) -> list[Any]:
        return [len(answer).to_bytes(4, "big"), answer]

    async with serving(dispatch) as server:
        server.unread = Unread(server.loop.call_later, most_bytes=12 << 20)
        silent = socket.create_connection(("127.0.0.1", server.ports["PLAINTEXT"]), timeout=20)
        async with connected(server) as reading:
            silent.sendall(frame(b"one"))
            await until(lambda: server.unread.bytes > 0)
            await asyncio.sleep(0.1)
            reading.send(frame(b"two"))
            assert len(await reading.receive()) == len(answer)
            await until(lambda: len(server.connections) == 1)
            assert server.unread.bytes == 0
            reading.send(frame(b"three"))
            assert len(await reading.receive()) == len(answer)
        silent.close()

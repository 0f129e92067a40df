"""Answers go out whole and in order, however little of them a socket takes at a time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from kbroker.network.channel import PlainChannel
from kbroker.network.outgoing import Outgoing
from kbroker.network.parts import MOST_PARTS_AT_ONCE, SMALL_FILE_PART, Shortened


class Slice:
    """`size` bytes of a real file, as an answer holds them."""

    def __init__(self, file: BinaryIO, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def fileno(self) -> int:
        return self.file.fileno()

    def read(self) -> bytes:
        self.file.seek(self.position)
        return self.file.read(self.size)


class Line:
    """A small socket, and who reads from its other end."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.theirs.setblocking(False)
        loop = asyncio.new_event_loop()
        self.channel = PlainChannel(ours, loop)
        loop.close()
        self.outgoing = Outgoing(self.channel)

    def read_all(self) -> bytes:
        """What has come; flushes whenever nothing is left to be read."""
        read = bytearray()
        for _ in range(100_000):
            try:
                read += self.theirs.recv(1 << 16)
            except BlockingIOError:
                if self.outgoing.is_empty:
                    return bytes(read)
                self.outgoing.flush()
        raise AssertionError(f"it never ended, after {len(read)} bytes")


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.channel.close()
    line.theirs.close()


def test_what_the_socket_takes_at_once_leaves_nothing_behind(line: Line) -> None:
    assert line.outgoing.send([b"ab", bytearray(b"c"), memoryview(b"de")])
    assert line.outgoing.is_empty
    assert line.read_all() == b"abcde"


def test_what_the_socket_took_in_part_goes_on_from_there(line: Line) -> None:
    content = bytes(range(251)) * 4000
    assert not line.outgoing.send([b"first", content, b"last"])
    assert line.read_all() == b"first" + content + b"last"


def test_bytes_and_files_go_out_in_order_through_a_socket_that_is_full_again_and_again(
    line: Line, tmp_path: Path
) -> None:
    path = tmp_path / "00000000000000000000.log"
    content = bytes(range(256)) * 2000
    path.write_bytes(content)
    large, small = SMALL_FILE_PART * 20 + 7, SMALL_FILE_PART - 3
    with path.open("rb") as file:
        parts: list[Any] = [b"first", Slice(file, 5, large), b"x" * 100_000, Slice(file, 9, small), bytearray(b"last")]
        assert not line.outgoing.send(parts)
        assert not line.outgoing.is_empty
        expected = b"first" + content[5 : 5 + large] + b"x" * 100_000 + content[9 : 9 + small] + b"last"
        assert line.read_all() == expected


def test_more_parts_than_one_system_call_takes_go_out_in_turns_of_the_loop(line: Line) -> None:
    parts: list[Any] = [b"%d," % index for index in range(3 * MOST_PARTS_AT_ONCE + 1)]
    first, rest = (b"".join(some) for some in (parts[:MOST_PARTS_AT_ONCE], parts[MOST_PARTS_AT_ONCE:]))
    assert not line.outgoing.send(parts)
    assert line.theirs.recv(1 << 16) == first
    assert line.read_all() == rest


@pytest.mark.parametrize("size", [SMALL_FILE_PART, SMALL_FILE_PART + 1])
def test_a_file_that_became_shorter_is_an_error_that_says_so(line: Line, tmp_path: Path, size: int) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"y" * 10)
    with path.open("rb") as file, pytest.raises(Shortened, match="shorter than it was"):
        line.outgoing.send([Slice(file, 10, size)])


def test_what_is_discarded_is_not_sent(line: Line) -> None:
    assert not line.outgoing.send([b"z" * 1_000_000])
    line.outgoing.discard()
    assert line.outgoing.is_empty
    assert set(line.read_all()) == {ord("z")}

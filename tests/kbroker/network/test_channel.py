"""The plain channel: bytes and slices of files over a real socket."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.network.channel import PlainChannel


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def test_bytes_and_files_go_out_in_order(tmp_path: Path, loop: asyncio.AbstractEventLoop) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    ours, theirs = socket.socketpair()
    channel = PlainChannel(ours, loop)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    try:
        assert channel.send([b"ab", memoryview(b"cd")], more=True) == 4
        assert channel.send_file(descriptor, 2, 5) == 5
        assert channel.send([b"!"]) == 1
        assert theirs.recv(100, socket.MSG_WAITALL | socket.MSG_DONTWAIT) == b"abcd23456!"
        assert channel.fileno() == ours.fileno()
    finally:
        os.close(descriptor)
        channel.close()
        theirs.close()


def test_what_arrives_is_read_into_a_buffer(loop: asyncio.AbstractEventLoop) -> None:
    ours, theirs = socket.socketpair()
    channel = PlainChannel(ours, loop)
    theirs.sendall(b"hello")
    buffer = bytearray(8)
    assert channel.recv_into(buffer) == 5
    assert buffer[:5] == b"hello"
    theirs.close()
    assert channel.recv_into(buffer) == 0
    channel.close()


def test_who_has_left_is_known_before_what_came_is_read(loop: asyncio.AbstractEventLoop) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    channel = PlainChannel(ours, loop)
    assert not channel.has_left()
    theirs.sendall(b"x")
    assert not channel.has_left()
    theirs.close()
    assert channel.has_left()
    assert channel.recv_into(bytearray(8)) == 1
    assert channel.has_left()
    channel.close()

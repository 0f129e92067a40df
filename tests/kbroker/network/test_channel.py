"""The plain channel: bytes and slices of files over a real socket."""

import asyncio
import os
import socket
from pathlib import Path

from kbroker.network.channel import PlainChannel

LOOP = asyncio.new_event_loop()


def test_bytes_and_files_go_out_in_order(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    ours, theirs = socket.socketpair()
    channel = PlainChannel(ours, LOOP)
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


def test_what_arrives_is_read_into_a_buffer() -> None:
    ours, theirs = socket.socketpair()
    channel = PlainChannel(ours, LOOP)
    theirs.sendall(b"hello")
    buffer = bytearray(8)
    assert channel.recv_into(buffer) == 5
    assert buffer[:5] == b"hello"
    theirs.close()
    assert channel.recv_into(buffer) == 0
    channel.close()


def test_an_end_is_noticed_without_reading_what_came_before_it() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    channel = PlainChannel(ours, LOOP)
    assert not channel.is_at_end()
    theirs.sendall(b"x")
    theirs.close()
    assert not channel.is_at_end()
    assert channel.recv_into(bytearray(8)) == 1
    assert channel.is_at_end()
    channel.close()

"""Connections in memory: whole and in order, unless they are cut or reset; both ends learn of an end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.simulation.loop import Machine, Simulation
from tests.simulation.network import WINDOW, Listening, Network, Socket

SERVER, CLIENT = "server", "client"


class Client(asyncio.Protocol):
    """Remembers what it heard."""

    def __init__(self) -> None:
        self.heard = b""
        self.end: Exception | str | None = "connected"

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.heard += data

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""
        self.end = error


class Pair:
    """A server and a client that are connected."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.network = Network(self.simulation)
        self.machine: Machine = self.simulation.machine(SERVER)
        self.other: Machine = self.simulation.machine(CLIENT)
        self.listening: Listening = self.network.listen(self.machine, SERVER, 0)
        port = self.listening.getsockname()[1]
        connecting = self.other.create_task(self.other.create_connection(Client, SERVER, port))
        assert self.simulation.run(10, connecting.done)
        self.transport, self.client = connecting.result()
        self.socket: Socket = self.listening.accept()[0]
        self.received = b""
        self.machine.add_reader(self.socket.fileno(), self._read)

    def _read(self) -> None:
        data = self.socket.recv(1 << 20)
        self.received += data
        if not data:
            self.machine.remove_reader(self.socket.fileno())

    def run(self, seconds: float = 5) -> None:
        """Let time pass."""
        self.machine.call_later(seconds, lambda: None)
        self.simulation.run(seconds)


@pytest.mark.parametrize("seed", range(20))
def test_all_bytes_arrive_in_order_in_both_directions(seed: int) -> None:
    pair = Pair(seed)
    up = b"".join(number.to_bytes(4) for number in range(2000))
    for start in range(0, len(up), 100):
        pair.transport.write(up[start : start + 100])
    down = up[::-1]
    sent = 0
    while sent < len(down):
        sent += pair.socket.sendmsg([memoryview(down)[sent : sent + 1000]])
    pair.run()
    assert pair.received == up
    assert pair.client.heard == down


def test_a_socket_takes_no_more_than_its_window_until_the_other_end_has_it() -> None:
    pair = Pair(1)
    sent = 0
    while sent < WINDOW:
        sent += pair.socket.sendmsg([bytes(100_000)])
    assert sent == WINDOW
    with pytest.raises(BlockingIOError):
        pair.socket.sendmsg([b"more"])
    writable: list[bool] = []
    pair.machine.add_writer(pair.socket.fileno(), writable.append, True)
    assert pair.simulation.run(5, lambda: bool(writable))
    assert len(pair.client.heard) > 0


def test_a_cut_holds_one_direction_back_until_it_is_mended() -> None:
    pair = Pair(1)
    pair.network.cut(SERVER, CLIENT)
    pair.transport.write(b"question")
    pair.socket.sendmsg([b"answer"])
    pair.run()
    assert (pair.received, pair.client.heard) == (b"question", b"")
    pair.network.mend()
    pair.run()
    assert pair.client.heard == b"answer"


def test_a_reset_loses_what_is_on_its_way_and_both_ends_hear_of_it() -> None:
    pair = Pair(1)
    pair.socket.sendmsg([b"lost answer"])
    for wire in list(pair.network.connections.values()):
        wire.reset()
    pair.machine.remove_reader(pair.socket.fileno())
    pair.run()
    assert pair.client.heard == b""
    assert isinstance(pair.client.end, ConnectionResetError)
    with pytest.raises(ConnectionResetError):
        pair.socket.recv(1)
    assert not pair.network.connections


def test_what_a_killed_machine_had_open_ends_for_the_others() -> None:
    pair = Pair(1)
    pair.simulation.kill(pair.machine)
    pair.network.died(pair.machine)
    pair.other.call_later(5, lambda: None)
    pair.simulation.run(5)
    assert pair.client.end is None
    again = pair.other.create_task(pair.other.create_connection(Client, SERVER, 9092))
    pair.simulation.run(5, again.done)
    with pytest.raises(ConnectionRefusedError):
        again.result()


def test_nobody_connects_through_a_cut_before_it_is_mended() -> None:
    pair = Pair(1)
    pair.network.cut(CLIENT, SERVER)
    task: asyncio.Task[Any] = pair.other.create_task(pair.other.create_connection(Client, SERVER, 9092))
    assert not pair.simulation.run(10, task.done)
    pair.network.mend()
    assert pair.simulation.run(10, task.done)
    assert task.exception() is None


def test_a_host_that_loses_answers_ends_connections_behind_what_was_asked() -> None:
    heard = set()
    for seed in range(40):
        pair = Pair(seed)
        pair.network.loses[SERVER] = None
        pair.transport.write(b"question")
        pair.run(1)
        assert pair.received == b"question"
        pair.machine.remove_reader(pair.socket.fileno())
        pair.socket.sendmsg([b"answer"])
        pair.run(1)
        if not pair.client.heard:
            assert isinstance(pair.client.end, ConnectionResetError)
        heard.add(bool(pair.client.heard))
    assert heard == {True, False}

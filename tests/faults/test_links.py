"""The links themselves: what is cut does not arrive, what is healed does, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Collection, Iterator

import pytest

from tests.faults.links import Links
from tests.fixtures.streams import stream_server

ONE, TWO, THREE = 1, 2, 3
SHORT = 0.2
LONG = 10.0


class Echo:
    """Answers each connection with what it says, in capitals."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.heard: list[bytes] = []
        self.arrived = threading.Semaphore(0)
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.server.accept()
                self.threads.append(threading.Thread(target=self._serve, args=(connection,)))
                self.threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while piece := connection.recv(1000):
                self.heard.append(piece)
                self.arrived.release()
                connection.sendall(piece.upper())

    def close(self) -> None:
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        for thread in self.threads:
            thread.join(LONG)
            assert not thread.is_alive()


class Peer:
    """A node that speaks to TWO through the links."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), LONG)

    def say(self, text: bytes) -> None:
        self.socket.sendall(text)

    def hears(self, timeout: float = LONG) -> bytes | None:
        """What comes back; None when nothing does."""
        self.socket.settimeout(timeout)
        try:
            return self.socket.recv(1000)
        except TimeoutError:
            return None


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def links(echo: Echo) -> Iterator[Links]:
    """They are closed before the echo, which waits for its connections."""
    made = Links()
    made.nodes |= {ONE, THREE}
    yield made
    made.close()


@pytest.fixture
def peers(links: Links, echo: Echo) -> Iterator[tuple[Peer, Peer]]:
    """ONE and THREE, connected to TWO."""
    one = Peer(links.listen(TWO, "127.0.0.1", echo.port, ONE))
    three = Peer(links.listen(TWO, "127.0.0.1", echo.port, THREE))
    yield one, three
    for peer in (one, three):
        peer.socket.close()


def test_bytes_go_both_ways(peers: tuple[Peer, Peer]) -> None:
    for peer in peers:
        peer.say(b"hello")
        assert peer.hears() == b"HELLO"


def test_a_request_that_is_cut_arrives_after_the_healing(links: Links, echo: Echo, peers: tuple[Peer, Peer]) -> None:
    one, three = peers
    links.cut(ONE, TWO)
    one.say(b"lost?")
    assert one.hears(SHORT) is None
    assert echo.heard == []
    three.say(b"not me")
    assert three.hears() == b"NOT ME"
    links.heal()
    assert one.hears() == b"LOST?"


def test_an_answer_that_is_cut_was_asked_for(links: Links, echo: Echo, peers: tuple[Peer, Peer]) -> None:
    one, _ = peers
    links.cut(TWO, ONE)
    one.say(b"do it")
    assert echo.arrived.acquire(timeout=LONG)
    assert one.hears(SHORT) is None
    links.heal()
    assert one.hears() == b"DO IT"


def test_an_isolated_node_reaches_nobody_and_its_end_is_not_noticed(
    links: Links, echo: Echo, peers: tuple[Peer, Peer]
) -> None:
    one, three = peers
    links.isolate(TWO)
    for peer in peers:
        peer.say(b"anybody?")
        assert peer.hears(SHORT) is None
    assert echo.heard == []
    one.socket.close()
    links.heal()
    assert three.hears() == b"ANYBODY?"


def test_a_refused_connection_is_reset_and_others_are_not(links: Links, peers: tuple[Peer, Peer]) -> None:
    one, three = peers
    for peer in peers:
        peer.say(b"x")
        assert peer.hears() == b"X"
    links.refuse(ONE, TWO)
    with contextlib.suppress(ConnectionResetError):
        assert one.hears() == b""
    three.say(b"fine")
    assert three.hears() == b"FINE"


def test_who_connects_is_asked_by_its_port(links: Links, echo: Echo) -> None:
    asked: list[int] = []

    def owners(ports: Collection[int]) -> dict[int, int]:
        asked.extend(ports)
        return dict.fromkeys(ports, ONE)

    peer = Peer(links.listen(TWO, "127.0.0.1", echo.port, owners))
    with peer.socket:
        links.cut_both(ONE, TWO)
        peer.say(b"x")
        assert peer.hears(SHORT) is None
        assert asked == [peer.socket.getsockname()[1]]
        links.heal()
        assert peer.hears() == b"X"


@pytest.mark.slow
def test_who_cannot_be_told_is_a_client_and_the_next_is_looked_up_again(links: Links, echo: Echo) -> None:
    looks: list[int] = []

    def owners(ports: Collection[int]) -> dict[int, int]:
        looks.extend(ports)
        if len(looks) == 1:
            raise RuntimeError("nobody knows")
        return dict.fromkeys(ports, ONE)

    port = links.listen(TWO, "127.0.0.1", echo.port, owners)
    links.cut_both(ONE, TWO)
    for heard in (b"X", None):
        peer = Peer(port)
        with peer.socket:
            peer.say(b"x")
            assert peer.hears(LONG if heard else SHORT) == heard


def test_those_who_wait_to_be_known_hold_up_nobody_who_is_and_what_they_gave_up_is_not_sent_on(
    links: Links, echo: Echo
) -> None:
    known, looks = threading.Event(), []

    def owners(ports: Collection[int]) -> dict[int, int]:
        looks.append(len(ports))
        assert known.wait(LONG)
        return {}

    slow = links.listen(TWO, "127.0.0.1", echo.port, owners)
    waiting = [Peer(slow) for _ in range(6)]
    try:
        for peer in waiting:
            peer.say(b"late")
        quick = Peer(links.listen(TWO, "127.0.0.1", echo.port, ONE))
        with quick.socket:
            quick.say(b"first")
            assert quick.hears() == b"FIRST"
        for peer in waiting[1:]:
            peer.socket.close()
        deadline = time.monotonic() + LONG
        while links.given_up < 5:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        known.set()
        assert waiting[0].hears() == b"LATE"
        assert echo.heard == [b"first", b"late"]
        assert len(looks) <= 2, "all that wait are looked up at once"
    finally:
        known.set()
        for peer in waiting:
            peer.socket.close()


@pytest.mark.parametrize("turns", range(6))
async def test_who_comes_in_the_last_turns_of_a_server_is_hung_up_on(turns: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with stream_server(serve) as port:
        client = socket.create_connection(("127.0.0.1", port), LONG)
        for _ in range(turns):
            await asyncio.sleep(0)
    with client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""

"""The plain connection: to a real broker, and to peers that do not behave."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kbroker.client.errors import NotConnected
from kbroker.client.plain_connection import PlainConnection
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.messages.metadata import MetadataRequest


@contextmanager
def peer(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """Run a peer that takes one connection and behaves as told; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                behave(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


def connect(port: int, timeout: float = 5.0) -> PlainConnection:
    return PlainConnection("127.0.0.1", port, client_id="test", timeout=timeout)


def test_requests_sent_ahead_are_answered_in_order(broker: BrokerProcess) -> None:
    connection = connect(broker.port)
    try:
        for _ in range(3):
            connection.send(MetadataRequest(topics=[]))
        answers = [connection.receive() for _ in range(3)]
        assert [answer.brokers[0].port for answer in answers] == [broker.port] * 3
    finally:
        connection.close()


def test_nobody_listening_is_told_with_the_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionError, match=f"no connection to 127.0.0.1:{port}"):
            connect(port)


def test_what_cannot_be_an_address_is_nowhere_connected() -> None:
    with pytest.raises(NotConnected, match=r"no connection to broker\.\.example:9092: no host has such a name"):
        PlainConnection("broker..example", 9092, client_id="test", timeout=30)


def test_a_silent_peer_runs_into_the_time_limit() -> None:
    release = threading.Event()
    with peer(lambda connection: (connection.recv(1024), release.wait(10), None)[-1]) as port:
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.2 s"):
            connect(port, timeout=0.2)
        release.set()


def test_a_peer_that_takes_connections_and_is_silent_has_no_longer_than_connecting_may_take() -> None:
    release = threading.Event()
    with peer(lambda connection: (connection.recv(1024), release.wait(30), None)[-1]) as port:
        with pytest.raises(TimeoutError, match=r"did not answer within 0\.2 s"):
            PlainConnection("127.0.0.1", port, client_id="test", timeout=60, connect_timeout=0.2)
        release.set()


def test_a_request_that_goes_out_late_has_as_long_as_any_to_be_sent(broker: BrokerProcess) -> None:
    connection = connect(broker.port, timeout=30)
    try:
        connection.request(MetadataRequest(topics=[]), timeout=20)
        assert (connection._socket.gettimeout() or 30) <= 20
        connection.send(MetadataRequest(topics=[]))
        assert connection._socket.gettimeout() == 30
        connection.receive()
    finally:
        connection.close()


def test_an_answer_that_comes_late_never_meets_the_next_question(own_broker: BrokerProcess) -> None:
    connection = connect(own_broker.port, timeout=2)
    own_broker.pause()
    with pytest.raises(TimeoutError):
        connection.request(MetadataRequest(topics=[]))
    assert not connection.is_open
    own_broker.resume()
    with pytest.raises(ConnectionError):
        connection.request(MetadataRequest(topics=[]))


def test_a_peer_that_hangs_up_is_told() -> None:
    with peer(lambda connection: None) as port, pytest.raises(ConnectionError, match=r"closed|ended"):
        connect(port)


def test_a_frame_longer_than_allowed_is_refused_before_it_is_read() -> None:
    def huge(connection: socket.socket) -> None:
        connection.recv(1024)
        connection.sendall((0x7FFFFFFF).to_bytes(4, "big") + b"x" * 100)

    with peer(huge) as port, pytest.raises(ConnectionError, match="sent what is no answer"):
        connect(port)

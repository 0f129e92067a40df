"""The service without sockets: sessions, who may take them over, expiry, order."""

from collections.abc import Callable

import pytest

from kbroker.dev.stand_in import jute
from kbroker.dev.stand_in.connection import Connection
from kbroker.dev.stand_in.jute import Reader
from kbroker.dev.stand_in.operations import Create, Mode
from kbroker.dev.stand_in.requests import Kind
from kbroker.dev.stand_in.service import CONTAINER_PAUSE_MS, PASSWORD_BYTES, Limits, Moment, Service
from kbroker.dev.stand_in.tree import Client, Tree

START = Moment(0, 0)
PASSWORD = b"p" * PASSWORD_BYTES


def at(now_ms: int) -> Moment:
    return Moment(now_ms, now_ms)


@pytest.fixture
def service() -> Service:
    return Service(Tree(), START, lambda: PASSWORD, first_session_id=100)


def hello(session_id: int = 0, password: bytes = bytes(16), timeout_ms: int = 6000, zxid: int = 0) -> bytes:
    return jute.buffer(
        jute.int32(0)
        + jute.int64(zxid)
        + jute.int32(timeout_ms)
        + jute.int64(session_id)
        + jute.buffer(password)
        + b"\0"
    )


def request(xid: int, kind: int, *fields: bytes) -> bytes:
    return jute.buffer(jute.int32(xid) + jute.int32(kind) + b"".join(fields))


def welcome(connection: Connection) -> tuple[int, int]:
    """Timeout and session id of the first answer."""
    reader = Reader(connection.take_queued())
    assert reader.int32() == 37
    assert reader.int32() == 0
    return reader.int32(), reader.int64()


def answers(connection: Connection) -> list[tuple[int, int]]:
    """xid and error of each frame."""
    reader, found = Reader(connection.take_queued()), []
    while not reader.is_at_end:
        frame = Reader(reader.buffer() or b"")
        xid, _, error = frame.int32(), frame.int64(), frame.int32()
        found.append((xid, error))
    return found


@pytest.fixture
def open_session(service: Service) -> Callable[..., Connection]:
    def open_one(now: Moment = START, **options: int) -> Connection:
        connection = service.connect()
        service.receive(connection, hello(**options), now)  # type: ignore[arg-type]
        assert welcome(connection)[0]
        return connection

    return open_one


def test_a_session_gets_an_id_of_its_own_and_a_timeout_within_limits(service: Service) -> None:
    found = []
    for timeout_ms in (1, 6000, 10_000_000):
        connection = service.connect()
        service.receive(connection, hello(timeout_ms=timeout_ms), START)
        found.append(welcome(connection))
    limits = Limits()
    assert found == [
        (limits.min_session_timeout_ms, 100),
        (6000, 101),
        (limits.max_session_timeout_ms, 102),
    ]


def test_requests_are_answered_in_their_order_with_events_before_what_came_after(
    service: Service, open_session: Callable[..., Connection]
) -> None:
    connection = open_session()
    create = jute.text("/a") + jute.buffer(b"") + jute.acl(Create("").acl) + jute.int32(0)
    batch = (
        request(1, Kind.EXISTS, jute.text("/a"), b"\1"),
        request(2, Kind.CREATE, create),
        request(3, Kind.GET_DATA, jute.text("/a"), b"\0"),
        request(-2, Kind.PING),
        request(4, Kind.CREATE, create),
        request(5, Kind.GET_DATA, jute.text("/a")),
    )
    service.receive(connection, b"".join(batch), START)
    assert answers(connection) == [(1, -101), (-1, 0), (2, 0), (3, 0), (-2, 0), (4, -110), (5, -5)]
    assert service.take_ready() == [connection]
    assert service.take_ready() == []


def test_a_session_lives_on_through_another_connection(
    service: Service, open_session: Callable[..., Connection]
) -> None:
    first = open_session()
    assert first.session is not None
    service.receive(first, request(1, Kind.EXISTS, jute.text("/a"), b"\1"), START)
    second = service.connect()
    service.receive(second, hello(first.session.session_id, PASSWORD), at(1))
    assert welcome(second) == (6000, first.session.session_id)
    assert first.is_closing
    service.disconnected(first)
    assert len(service.tree.watches) == 0, "watches are of the connection"
    service.tick(at(5999))
    assert service.tree.sessions
    service.disconnected(second)
    service.tick(at(6001))
    assert not service.tree.sessions


@pytest.mark.parametrize("secret", [(100, b"wrong password!!"), (99, PASSWORD), (100, b"")])
def test_a_stranger_is_told_that_the_session_is_over_and_its_owner_keeps_it(
    service: Service, open_session: Callable[..., Connection], secret: tuple[int, bytes]
) -> None:
    owner = open_session()
    stranger = service.connect()
    service.receive(stranger, hello(*secret), START)
    assert welcome(stranger) == (0, 0)
    assert stranger.is_closing
    service.receive(owner, request(1, Kind.PING), START)
    assert answers(owner) == [(1, 0)]


def test_who_has_seen_what_this_folder_lost_is_sent_away(service: Service) -> None:
    connection = service.connect()
    service.receive(connection, hello(zxid=1), START)
    assert connection.is_closing
    assert connection.take_queued() == b""
    assert not service.tree.sessions


def test_a_session_nobody_hears_of_expires_and_its_connection_ends(
    service: Service, open_session: Callable[..., Connection]
) -> None:
    silent, speaking = open_session(), open_session()
    assert silent.session is not None
    service.tree.write(Create("/e", mode=Mode.EPHEMERAL), Client(silent.session.session_id), 0)
    service.receive(speaking, request(1, Kind.PING), at(3000))
    assert service.next_tick_ms() == 6000
    service.tick(at(6000))
    assert silent.is_closing
    assert not speaking.is_closing
    assert "/e" not in service.tree.nodes
    service.receive(silent, request(1, Kind.PING), at(6000))
    assert answers(silent) == []


def test_sessions_of_an_earlier_start_have_their_whole_time_again() -> None:
    tree = Tree()
    tree.open_session(7, 1000, PASSWORD, now_ms=0)
    service = Service(tree, at(50_000), lambda: PASSWORD, first_session_id=100)
    service.tick(at(50_999))
    assert tree.sessions
    service.tick(at(51_000))
    assert not tree.sessions


def test_closing_answers_and_hangs_up(service: Service, open_session: Callable[..., Connection]) -> None:
    connection = open_session()
    service.receive(connection, request(9, Kind.CLOSE_SESSION) + request(10, Kind.PING), START)
    assert answers(connection) == [(9, 0)]
    assert connection.is_closing
    assert not service.tree.sessions


def test_an_unknown_request_is_told_and_hung_up_on(service: Service, open_session: Callable[..., Connection]) -> None:
    connection = open_session()
    service.receive(connection, request(9, 999), START)
    assert answers(connection) == [(9, -6)]
    assert connection.is_closing


def test_what_is_too_large_ends_the_connection_but_not_the_session(
    service: Service, open_session: Callable[..., Connection]
) -> None:
    connection = open_session()
    service.receive(connection, jute.int32(service.limits.max_packet_bytes + 1), START)
    assert connection.is_closing
    assert service.tree.sessions


def test_a_word_is_answered_and_hung_up_on(service: Service) -> None:
    connection = service.connect()
    service.receive(connection, b"ru", START)
    assert not connection.is_closing
    service.receive(connection, b"ok\n", START)
    assert connection.take_queued() == b"imok"
    assert connection.is_closing


@pytest.mark.parametrize("data", [jute.int32(0), jute.buffer(b"short"), b"GET / HTTP/1.1\r\n\r\n"])
def test_what_is_no_client_is_hung_up_on(service: Service, data: bytes) -> None:
    connection = service.connect()
    service.receive(connection, data, START)
    assert connection.is_closing
    assert not service.tree.sessions


def test_credentials_count_for_their_connection(service: Service, open_session: Callable[..., Connection]) -> None:
    connection = open_session()
    packet = jute.int32(0) + jute.text("digest") + jute.buffer(b"ann:secret")
    service.receive(connection, request(-4, Kind.AUTH, packet) * 2, START)
    assert answers(connection) == [(-4, 0)] * 2
    assert [identity.scheme for identity in connection.identities] == ["digest"]


def test_empty_containers_go_now_and_then(service: Service) -> None:
    tree = service.tree
    tree.open_session(1, 100_000, PASSWORD, 0)
    tree.write(Create("/c", mode=Mode.CONTAINER), Client(1), 0)
    tree.write(Create("/c/x", mode=Mode.EPHEMERAL), Client(1), 0)
    tree.close_session(1, 0)
    service.tick(at(CONTAINER_PAUSE_MS - 1))
    assert "/c" in tree.nodes
    assert service.next_tick_ms() == CONTAINER_PAUSE_MS
    service.tick(at(CONTAINER_PAUSE_MS))
    assert "/c" not in tree.nodes

"""A client's line: frames however they come, what is queued, what is not told."""

import pytest

from kbroker.dev.stand_in import connection as module
from kbroker.dev.stand_in import jute
from kbroker.dev.stand_in.connection import Connection
from kbroker.dev.stand_in.operations import OPEN_ACL, WRITE, Acl, Code, Event, EventType


@pytest.fixture
def ready() -> list[Connection]:
    return []


@pytest.fixture
def connection(ready: list[Connection]) -> Connection:
    return Connection(ready.append)


def test_frames_come_out_whole_however_they_arrive(connection: Connection) -> None:
    stream = b"".join(jute.buffer(part) for part in (b"one", b"", b"three"))
    found = [frame for at in range(len(stream)) for frame in connection.frames(stream[at : at + 1], 10)]
    assert found == [b"one", b"", b"three"]
    assert list(connection.frames(stream + b"\0", 10)) == found
    assert not connection.is_closing


@pytest.mark.parametrize("size", [11, -1, 0x7FFFFFFF])
def test_a_frame_that_is_too_large_closes_the_line_before_it_is_there(
    connection: Connection, ready: list[Connection], size: int
) -> None:
    assert list(connection.frames(jute.buffer(b"x") + jute.int32(size), 10)) == [b"x"]
    assert connection.is_closing
    assert ready == [connection]
    assert list(connection.frames(jute.buffer(b"more"), 10)) == []


def test_what_is_queued_is_taken_once(connection: Connection, ready: list[Connection]) -> None:
    connection.reply(7, 8, Code.NO_NODE)
    connection.send(b"x")
    assert connection.take_queued() == jute.buffer(jute.int32(7) + jute.int64(8) + jute.int32(-101)) + b"x"
    assert connection.take_queued() == b""
    assert ready == [connection] * 2


def test_who_does_not_read_is_closed(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED_BYTES", 10)
    connection.send(b"x" * 10)
    before = connection.is_closing
    connection.send(b"x")
    assert (before, connection.is_closing) == (False, True)
    assert connection.take_queued() == b""


def test_events_of_what_may_not_be_read_are_not_told(connection: Connection) -> None:
    connection.notify(Event(EventType.CREATED, "/a", 5), (Acl(WRITE, "world", "anyone"),))
    assert connection.take_queued() == b""
    connection.notify(Event(EventType.CREATED, "/a", 5), OPEN_ACL)
    told = jute.int32(-1) + jute.int64(5) + jute.int32(0) + jute.int32(1) + jute.int32(3) + jute.text("/a")
    assert connection.take_queued() == jute.buffer(told)


def test_the_first_bytes_are_seen_without_being_taken(connection: Connection) -> None:
    assert connection.peek(b"ruok\n", 4) == b"ruok"
    assert list(connection.frames(b"\0\0", 10)) == []
    assert connection.peek(b"\0\1x", 4) == b"\0\0\0\1"

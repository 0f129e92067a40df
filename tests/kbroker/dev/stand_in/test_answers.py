"""What requests do; that the answers are a real ZooKeeper's is tested in test_like_a_real_zookeeper.py."""

import pytest

from kbroker.dev.stand_in import jute
from kbroker.dev.stand_in.access import authenticated
from kbroker.dev.stand_in.answers import Unknown, answer
from kbroker.dev.stand_in.connection import Connection
from kbroker.dev.stand_in.jute import Malformed, Reader
from kbroker.dev.stand_in.operations import Code, Create, Refused, SetData
from kbroker.dev.stand_in.requests import Kind
from kbroker.dev.stand_in.tree import Tree


@pytest.fixture
def connection() -> Connection:
    return Connection(lambda ready: None)


@pytest.fixture
def tree(connection: Connection) -> Tree:
    tree = Tree()
    connection.session = tree.open_session(1, 6000, b"", now_ms=0)
    tree.write(Create("/a", b"x"), connection.client, now_ms=0)
    return tree


def ask(tree: Tree, connection: Connection, kind: int, *fields: bytes) -> bytes:
    return answer(tree, connection, kind, Reader(b"".join(fields)), now_ms=1)


def test_watches_set_again_tell_what_was_missed(tree: Tree, connection: Connection) -> None:
    since = tree.zxid
    tree.write(Create("/b"), connection.client, now_ms=1)
    tree.write(SetData("/a", b"y"), connection.client, now_ms=1)
    lists = jute.texts(["/a", "/b", "/gone"]), jute.texts(["/a", "/new"]), jute.texts(["/", "/gone", "/a"])
    assert ask(tree, connection, Kind.SET_WATCHES, jute.int64(since), *lists) == b""
    events = []
    for kind, path in ((3, "/a"), (3, "/b"), (2, "/gone"), (1, "/a"), (4, "/"), (2, "/gone")):
        event = jute.int32(-1) + jute.int64(-1) + jute.int32(0) + jute.int32(kind) + jute.int32(3) + jute.text(path)
        events.append(jute.buffer(event))
    assert connection.take_queued() == b"".join(events)
    assert len(tree.watches.data) == 1
    assert len(tree.watches.children) == 1


def test_who_the_client_is_is_told_without_the_digest(tree: Tree, connection: Connection) -> None:
    connection.identities = (authenticated("digest", b"ann:secret"),)
    assert ask(tree, connection, Kind.WHO_AM_I) == jute.int32(1) + jute.text("digest") + jute.text("ann")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Kind.MULTI, jute.int32(Kind.PING) + b"\0" + jute.int32(-1)),
        (Kind.MULTI, b""),
        (Kind.MULTI_READ, jute.int32(Kind.DELETE) + b"\0" + jute.int32(-1)),
        (Kind.ADD_WATCH, jute.text("/a") + jute.int32(2)),
        (Kind.CHECK_WATCHES, jute.text("/a") + jute.int32(9)),
        (Kind.GET_DATA, jute.text("/a")),
        (Kind.CREATE, jute.text("/a")),
    ],
)
def test_what_makes_no_sense_is_malformed(tree: Tree, connection: Connection, kind: int, fields: bytes) -> None:
    with pytest.raises(Malformed):
        ask(tree, connection, kind, fields)
    tree.check()


def test_what_it_does_not_know_is_told(tree: Tree, connection: Connection) -> None:
    with pytest.raises(Unknown):
        ask(tree, connection, 9999)
    with pytest.raises(Refused) as refused:
        ask(tree, connection, Kind.RECONFIG)
    assert refused.value.code is Code.RECONFIG_DISABLED

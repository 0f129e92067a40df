"""What each request of a session does, and the fields of its answer (no socket, no clock)."""

from __future__ import annotations

from collections.abc import Callable

from kbroker.dev.stand_in import jute, requests
from kbroker.dev.stand_in.connection import Connection
from kbroker.dev.stand_in.jute import Malformed, Reader
from kbroker.dev.stand_in.operations import OPEN_ACL, Code, Event, EventType, Operation, Refused
from kbroker.dev.stand_in.requests import Kind
from kbroker.dev.stand_in.tree import Tree
from kbroker.dev.stand_in.watches import WatcherKind

WRITES = (*requests.IN_MULTIS, Kind.SET_ACL)


class Unknown(Exception):
    """There is no such request."""


def answer(tree: Tree, connection: Connection, kind: int, reader: Reader, now_ms: int) -> bytes:
    """Carry out a request and return the answer's fields. Raises Refused, Malformed or Unknown."""
    if kind in WRITES:
        done = tree.write(requests.read_write(kind, reader), connection.client, now_ms)
        return requests.write_answer(kind, done)
    if kind == Kind.MULTI:
        return _multi(tree, connection, reader, now_ms)
    if kind not in _ANSWERS:
        raise Unknown
    return _ANSWERS[kind](tree, connection, reader)


def _multi(tree: Tree, connection: Connection, reader: Reader, now_ms: int) -> bytes:
    kinds: list[int] = []
    operations: list[Operation] = []
    for kind in requests.multi_parts(reader):
        if kind not in requests.IN_MULTIS:
            raise Malformed(f"{kind} in a multi that writes")
        kinds.append(kind)
        operations.append(requests.read_write(kind, reader))
    return requests.multi_answer(kinds, tree.write_all(operations, connection.client, now_ms))


def _multi_read(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    parts = []
    for kind in requests.multi_parts(reader):
        if kind not in (Kind.GET_DATA, Kind.GET_CHILDREN):
            raise Malformed(f"{kind} in a multi that reads")
        try:
            parts.append(requests.multi_result(kind, _ANSWERS[kind](tree, connection, reader)))
        except Refused as refused:
            parts.append(requests.multi_error(refused))
    return b"".join(parts) + requests.END_OF_MULTI


def _watcher(connection: Connection, reader: Reader) -> Connection | None:
    return connection if reader.boolean() else None


def _exists(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    path = reader.text()
    return jute.stat(tree.stat(path, connection.client, _watcher(connection, reader)))


def _get_data(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    path = reader.text()
    data, stat = tree.data(path, connection.client, _watcher(connection, reader))
    return jute.buffer(data) + jute.stat(stat)


def _get_children(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    path = reader.text()
    return jute.texts(tree.children(path, connection.client, _watcher(connection, reader))[0])


def _get_children_2(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    path = reader.text()
    names, stat = tree.children(path, connection.client, _watcher(connection, reader))
    return jute.texts(names) + jute.stat(stat)


def _get_acl(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    acl, stat = tree.acl(reader.text(), connection.client)
    return jute.acl(acl) + jute.stat(stat)


def _get_all_children_number(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    return jute.int32(tree.count_below(reader.text(), connection.client))


def _get_ephemerals(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    prefix = reader.text().strip()
    return jute.texts(tree.ephemerals(connection.client.session_id, prefix))


def _sync(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    return jute.text(reader.text())


def _ping(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    return b""


def _who_am_i(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    parts = [jute.text(scheme) + jute.text(name.partition(":")[0]) for scheme, name in connection.identities]
    return jute.int32(len(parts)) + b"".join(parts)


def _reconfig(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    raise Refused(Code.RECONFIG_DISABLED)


# --- watches ---


def _add_watch(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    path, mode = reader.text(), reader.int32()
    if mode not in (0, 1):
        raise Malformed(f"{mode} is no way to watch")
    tree.watches.add_persistent(path, connection, recursive=mode == 1)
    return jute.int32(Code.OK)


def _set_watches(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    """Set the watches of an earlier connection again, and tell what has happened since."""
    since = reader.int64()
    data, exist, children = reader.texts(), reader.texts(), reader.texts()
    missed: list[tuple[EventType, str]] = []
    for path in data:
        node = tree.nodes.get(path)
        if node is None or node.mzxid > since:
            missed.append((EventType.DELETED if node is None else EventType.DATA_CHANGED, path))
        else:
            tree.watches.data.add(path, connection)
    for path in exist:
        if path in tree.nodes:
            missed.append((EventType.CREATED, path))
        else:
            tree.watches.data.add(path, connection)
    for path in children:
        node = tree.nodes.get(path)
        if node is None or node.pzxid > since:
            missed.append((EventType.DELETED if node is None else EventType.CHILDREN_CHANGED, path))
        else:
            tree.watches.children.add(path, connection)
    for kind, path in missed:
        connection.notify(Event(kind, path), OPEN_ACL)
    return b""


def _set_watches_2(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    _set_watches(tree, connection, reader)
    for path in reader.texts():
        tree.watches.add_persistent(path, connection, recursive=False)
    for path in reader.texts():
        tree.watches.add_persistent(path, connection, recursive=True)
    return b""


def _check_watches(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    path, kind = reader.text(), _watcher_kind(reader.int32())
    if not tree.watches.has(path, connection, kind):
        raise Refused(Code.NO_WATCHER, path)
    return b""


def _remove_watches(tree: Tree, connection: Connection, reader: Reader) -> bytes:
    path, kind = reader.text(), _watcher_kind(reader.int32())
    if not tree.watches.remove(path, connection, kind):
        raise Refused(Code.NO_WATCHER, path)
    return b""


def _watcher_kind(number: int) -> WatcherKind:
    try:
        return WatcherKind(number)
    except ValueError:
        raise Malformed(f"{number} is no kind of watch") from None


_ANSWERS: dict[int, Callable[[Tree, Connection, Reader], bytes]] = {
    Kind.EXISTS: _exists,
    Kind.GET_DATA: _get_data,
    Kind.GET_ACL: _get_acl,
    Kind.GET_CHILDREN: _get_children,
    Kind.SYNC: _sync,
    Kind.PING: _ping,
    Kind.GET_CHILDREN_2: _get_children_2,
    Kind.RECONFIG: _reconfig,
    Kind.CHECK_WATCHES: _check_watches,
    Kind.REMOVE_WATCHES: _remove_watches,
    Kind.MULTI_READ: _multi_read,
    Kind.SET_WATCHES: _set_watches,
    Kind.GET_EPHEMERALS: _get_ephemerals,
    Kind.GET_ALL_CHILDREN_NUMBER: _get_all_children_number,
    Kind.SET_WATCHES_2: _set_watches_2,
    Kind.ADD_WATCH: _add_watch,
    Kind.WHO_AM_I: _who_am_i,
}

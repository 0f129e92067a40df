"""ZooKeeper's tree in memory: nodes, versions, sessions, watches (pure: time, session ids and passwords are passed in).

    tree = Tree()
    tree.open_session(7, timeout_ms=6000, password=b"…", now_ms=0)
    tree.write(Create("/brokers"), Client(7), now_ms=1)
    tree.write_all([SetData("/brokers", b"x"), Check("/brokers", 0)], Client(7), now_ms=2)   # [Refused, Refused]

What a write is about to change is decided operation by operation, on the tree as the operations before have left it;
when one is refused, all are taken back. Each write has a zxid of its own, refused or not. Only then the watches are
told, and `on_commit`, which keeps the tree on a disk: `replay` brings what it was told into another tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kbroker.dev.stand_in import access
from kbroker.dev.stand_in.operations import (
    ADMIN,
    ANY_VERSION,
    CONTAINER_OWNER,
    CREATE,
    DELETE,
    OPEN_ACL,
    READ,
    WRITE,
    Acl,
    AclSet,
    Change,
    Check,
    Code,
    Create,
    Created,
    DataSet,
    Delete,
    Deleted,
    Done,
    Identity,
    Mode,
    Operation,
    Refused,
    SessionClosed,
    SessionOpened,
    SetAcl,
    SetData,
    Stat,
    Transaction,
)
from kbroker.dev.stand_in.paths import ROOT, SYSTEM_NODES, name_of, parent_of, validate
from kbroker.dev.stand_in.watches import Watcher, Watches

READ_ONLY_ACL = (Acl(READ, "world", "anyone"),)
ABOUT = b"kbroker's stand-in for ZooKeeper: one process, for development and tests"
"""What /zookeeper/stand-in holds: no real ZooKeeper has that node."""


class Client(NamedTuple):
    """Who asks: a session, and what its connection has proved to be."""

    session_id: int
    identities: tuple[Identity, ...] = ()


class Session:
    """What outlives connections: its ephemeral nodes end with it."""

    __slots__ = ("ephemerals", "password", "session_id", "timeout_ms")

    def __init__(self, session_id: int, timeout_ms: int, password: bytes) -> None:
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.password = password
        self.ephemerals: dict[str, None] = {}


class Node:
    """One node; `cversion` counts the children made, which is also what sequential names are made of."""

    __slots__ = (
        "acl",
        "aversion",
        "children",
        "ctime_ms",
        "cversion",
        "czxid",
        "data",
        "mtime_ms",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes | None, acl: tuple[Acl, ...], owner: int, zxid: int, now_ms: int) -> None:
        self.data = data
        self.acl = acl
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = now_ms
        self.version = self.cversion = self.aversion = 0
        self.children: dict[str, None] = {}

    @property
    def is_ephemeral(self) -> bool:
        """Whether a session owns it."""
        return self.owner not in (0, CONTAINER_OWNER)

    def stat(self) -> Stat:
        """What clients are told; to them cversion also counts the children removed."""
        count = len(self.children)
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            2 * self.cversion - count,
            self.aversion,
            self.owner,
            len(self.data or b""),
            count,
            self.pzxid,
        )


class Tree:
    """All nodes and sessions. Every method does all of its work or raises Refused."""

    def __init__(self) -> None:
        self.zxid = 0
        """Of the last write."""
        self.nodes: dict[str, Node] = {ROOT: Node(b"", OPEN_ACL, 0, 0, 0)}
        self.sessions: dict[int, Session] = {}
        self.watches = Watches()
        self.on_commit: Callable[[Transaction], None] = lambda transaction: None
        """Told of each transaction that has changed something, before the watches are."""
        for path in SYSTEM_NODES:
            self._add(path, Node(b"", OPEN_ACL, 0, 0, 0))
        self.nodes["/zookeeper/config"].acl = self.nodes["/zookeeper/stand-in"].acl = READ_ONLY_ACL
        self.nodes["/zookeeper/stand-in"].data = ABOUT

        self._undo: list[Callable[[], None]] = []
        self._news: list[Callable[[], None]] = []

    # --- sessions ---

    def open_session(self, session_id: int, timeout_ms: int, password: bytes, now_ms: int) -> Session:
        """Begin a session under an id that was never used."""
        assert session_id not in self.sessions, "a session id is used once"
        self._carry_out([SessionOpened(session_id, timeout_ms, password)], now_ms)
        return self.sessions[session_id]

    def close_session(self, session_id: int, now_ms: int) -> None:
        """End a session, at its client's wish or because nobody hears of it: its ephemeral nodes go.

        Harmless when it has ended.
        """
        session = self.sessions.get(session_id)
        if session is not None:
            self._carry_out([*map(Deleted, session.ephemerals), SessionClosed(session_id)], now_ms)

    def remove_empty_containers(self, now_ms: int) -> list[str]:
        """Remove the containers whose last child has gone, each in a write of its own; return their paths."""
        empty = [
            path
            for path, node in self.nodes.items()
            if node.owner == CONTAINER_OWNER and node.cversion and not node.children
        ]
        for path in empty:
            self._carry_out([Deleted(path)], now_ms)
        return empty

    # --- writes ---

    def write(self, operation: Operation, client: Client, now_ms: int) -> Done:
        """Carry out one operation. Raises Refused."""
        [outcome] = self._write([operation], client, now_ms)
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    def write_all(self, operations: Sequence[Operation], client: Client, now_ms: int) -> Sequence[Done | Refused]:
        """Carry out all operations, or none.

        Where one is refused, those before it have OK as their code and those after it RUNTIME_INCONSISTENCY.
        """
        return self._write(operations, client, now_ms)

    def _write(self, operations: Sequence[Operation], client: Client, now_ms: int) -> Sequence[Done | Refused]:
        self.zxid += 1
        done: list[Done] = []
        changes: list[Change] = []
        try:
            for operation in operations:
                change = self._decide(operation, client)
                if change is not None:
                    self._apply(change, self.zxid, now_ms)
                    changes.append(change)
                done.append(self._outcome(operation, change))
        except Refused as refused:
            for undo in reversed(self._undo):
                undo()
            self._forget_news()
            after = len(operations) - len(done) - 1
            return [Refused(Code.OK)] * len(done) + [refused] + [Refused(Code.RUNTIME_INCONSISTENCY)] * after
        self._commit(changes, now_ms)
        return done

    def _outcome(self, operation: Operation, change: Change | None) -> Done:
        path = change.path if isinstance(change, Created) else operation.path
        return Done(path, None if isinstance(operation, Delete | Check) else self.nodes[path].stat())

    def _decide(self, operation: Operation, client: Client) -> Change | None:
        """Return what the operation would change now. Raises Refused."""
        if client.session_id not in self.sessions:
            raise Refused(Code.SESSION_EXPIRED, operation.path)
        if isinstance(operation, Create):
            return self._decide_create(operation, client)
        if isinstance(operation, Delete):
            return self._decide_delete(operation, client)
        path = operation.path
        validate(path)
        wanted_acl = (
            access.resolved(operation.acl, client.identities, path) if isinstance(operation, SetAcl) else OPEN_ACL
        )
        node = self._node(path)
        if isinstance(operation, SetAcl):
            access.check(node.acl, ADMIN, client.identities)
            _check_version(node.aversion, operation.version, path)
            return AclSet(path, wanted_acl)
        access.check(node.acl, READ if isinstance(operation, Check) else WRITE, client.identities)
        _check_version(node.version, operation.version, path)
        return DataSet(path, operation.data) if isinstance(operation, SetData) else None

    def _decide_create(self, operation: Create, client: Client) -> Created:
        if operation.mode is Mode.UNKNOWN:
            raise Refused(Code.BAD_ARGUMENTS, operation.path)
        if operation.mode.has_ttl:
            # A real ZooKeeper knows these only when it is told so (extendedTypesEnabled).
            raise Refused(Code.UNIMPLEMENTED, operation.path)
        parent_path = parent_of(operation.path)
        acl = access.resolved(operation.acl, client.identities, operation.path)
        parent = self._node(parent_path)
        access.check(parent.acl, CREATE, client.identities)
        path = f"{operation.path}{parent.cversion:010d}" if operation.mode.is_sequential else operation.path
        validate(path)
        if path in self.nodes:
            raise Refused(Code.NODE_EXISTS, path)
        if parent.is_ephemeral:
            raise Refused(Code.NO_CHILDREN_FOR_EPHEMERALS, path)
        owner = client.session_id if operation.mode.is_ephemeral else 0
        return Created(path, operation.data, acl, CONTAINER_OWNER if operation.mode is Mode.CONTAINER else owner)

    def _decide_delete(self, operation: Delete, client: Client) -> Deleted:
        path = operation.path
        if path == ROOT or path in SYSTEM_NODES:
            raise Refused(Code.BAD_ARGUMENTS, path)
        access.check(self._node(parent_of(path)).acl, DELETE, client.identities)
        node = self._node(path)
        _check_version(node.version, operation.version, path)
        if node.children:
            raise Refused(Code.NOT_EMPTY, path)
        return Deleted(path)

    # --- reads ---

    def stat(self, path: str, client: Client, watcher: Watcher | None = None) -> Stat:
        """Return a node's Stat; the watch is set also where there is no node."""
        if "\0" in path:
            raise Refused(Code.BAD_ARGUMENTS, path)
        node = self.nodes.get(path)
        if node is not None:
            access.check(node.acl, READ, client.identities)
        if watcher is not None:
            self.watches.data.add(path, watcher)
        return self._node(path).stat()

    def data(self, path: str, client: Client, watcher: Watcher | None = None) -> tuple[bytes | None, Stat]:
        """Return a node's data and Stat."""
        node = self._readable(path, client)
        if watcher is not None:
            self.watches.data.add(path, watcher)
        return node.data, node.stat()

    def children(self, path: str, client: Client, watcher: Watcher | None = None) -> tuple[list[str], Stat]:
        """Return the sorted names of a node's children, and its own Stat."""
        node = self._readable(path, client)
        if watcher is not None:
            self.watches.children.add(path, watcher)
        return sorted(node.children), node.stat()

    def acl(self, path: str, client: Client) -> tuple[tuple[Acl, ...], Stat]:
        """Return a node's ACL, without the digests for those who may only read it."""
        node = self._node(path)
        access.check(node.acl, READ | ADMIN, client.identities)
        try:
            access.check(node.acl, ADMIN, client.identities)
        except Refused:
            return access.without_secrets(node.acl), node.stat()
        return node.acl, node.stat()

    def count_below(self, path: str, client: Client) -> int:
        """Return how many nodes there are below, at any depth."""
        self._readable(path, client)
        prefix = path.rstrip(ROOT) + ROOT
        return sum(each.startswith(prefix) for each in self.nodes) - (path == ROOT)

    def ephemerals(self, session_id: int, prefix: str = "") -> list[str]:
        """Return the sorted paths of a session's ephemeral nodes that begin so."""
        session = self.sessions.get(session_id)
        return sorted(path for path in (session.ephemerals if session else ()) if path.startswith(prefix))

    def _readable(self, path: str, client: Client) -> Node:
        node = self._node(path)
        access.check(node.acl, READ, client.identities)
        return node

    def _node(self, path: str) -> Node:
        node = self.nodes.get(path)
        if node is None:
            raise Refused(Code.NO_NODE, path)
        return node

    # --- changes ---

    def replay(self, transaction: Transaction) -> None:
        """Bring in what another tree's `on_commit` was told; nobody is told of it here."""
        for change in transaction.changes:
            self._apply(change, transaction.zxid, transaction.time_ms)
        self.zxid = transaction.zxid
        self._forget_news()

    def restore(self, path: str, node: Node) -> None:
        """Bring in a node as it was, after its session and its parent; nobody is told of it."""
        if path in self.nodes:  # the root, and the system's
            node.children = self.nodes[path].children
            self.nodes[path] = node
        else:
            self._add(path, node)

    def _carry_out(self, changes: Sequence[Change], now_ms: int) -> None:
        self.zxid += 1
        for change in changes:
            self._apply(change, self.zxid, now_ms)
        self._commit(changes, now_ms)

    def _commit(self, changes: Sequence[Change], now_ms: int) -> None:
        if changes:
            self.on_commit(Transaction(self.zxid, now_ms, tuple(changes)))
        news = self._news[:]
        self._forget_news()
        for tell in news:
            tell()

    def _forget_news(self) -> None:
        self._undo.clear()
        self._news.clear()

    def _apply(self, change: Change, zxid: int, now_ms: int) -> None:
        if isinstance(change, Created):
            self._create(change, zxid, now_ms)
        elif isinstance(change, Deleted):
            self._delete(change.path, zxid)
        elif isinstance(change, DataSet):
            self._set_data(change, zxid, now_ms)
        elif isinstance(change, AclSet):
            node = self.nodes[change.path]
            node.acl, node.aversion = change.acl, _next_version(node.aversion)
        elif isinstance(change, SessionOpened):
            self.sessions[change.session_id] = Session(*change)
        else:
            del self.sessions[change.session_id]

    def _create(self, change: Created, zxid: int, now_ms: int) -> None:
        path, parent = change.path, self.nodes[parent_of(change.path)]
        before = parent.pzxid
        self._add(path, Node(change.data, change.acl, change.owner, zxid, now_ms))
        parent.cversion += 1
        parent.pzxid = zxid

        def undo() -> None:
            self._remove(path)
            parent.cversion -= 1
            parent.pzxid = before

        self._undo.append(undo)
        self._news.append(lambda: self.watches.created(path, parent_of(path), zxid, change.acl, parent.acl))

    def _delete(self, path: str, zxid: int) -> None:
        parent, node = self.nodes[parent_of(path)], self.nodes[path]
        before = parent.pzxid
        self._remove(path)
        parent.pzxid = zxid

        def undo() -> None:
            self._add(path, node)
            parent.pzxid = before

        self._undo.append(undo)
        self._news.append(lambda: self.watches.deleted(path, parent_of(path), zxid, node.acl, parent.acl))

    def _set_data(self, change: DataSet, zxid: int, now_ms: int) -> None:
        path, node = change.path, self.nodes[change.path]
        before = node.data, node.version, node.mzxid, node.mtime_ms

        def undo() -> None:
            node.data, node.version, node.mzxid, node.mtime_ms = before

        node.data, node.version, node.mzxid, node.mtime_ms = change.data, _next_version(node.version), zxid, now_ms
        self._undo.append(undo)
        self._news.append(lambda: self.watches.data_changed(path, zxid, node.acl))

    def _add(self, path: str, node: Node) -> None:
        self.nodes[path] = node
        self.nodes[parent_of(path)].children[name_of(path)] = None
        if node.is_ephemeral:
            self.sessions[node.owner].ephemerals[path] = None

    def _remove(self, path: str) -> None:
        node = self.nodes.pop(path)
        del self.nodes[parent_of(path)].children[name_of(path)]
        if node.is_ephemeral:
            del self.sessions[node.owner].ephemerals[path]

    def check(self) -> None:
        """Assert what must always hold."""
        for path, node in self.nodes.items():
            assert path == ROOT or name_of(path) in self.nodes[parent_of(path)].children
            assert all(f"{path.rstrip(ROOT)}/{name}" in self.nodes for name in node.children)
            assert not node.is_ephemeral or path in self.sessions[node.owner].ephemerals
            assert not (node.is_ephemeral and node.children)
            assert node.mzxid <= self.zxid >= node.pzxid
        for session in self.sessions.values():
            assert all(self.nodes[path].owner == session.session_id for path in session.ephemerals)
        assert not self._undo
        assert not self._news


def _check_version(present: int, wanted: int, path: str) -> None:
    if wanted not in (ANY_VERSION, present):
        raise Refused(Code.BAD_VERSION, path)


def _next_version(version: int) -> int:
    """Count on as an int32 does, but over -1, which means any version."""
    following = version + 1 if version < _HIGHEST else _LOWEST
    return 0 if following == ANY_VERSION else following


_HIGHEST, _LOWEST = (1 << 31) - 1, -(1 << 31)

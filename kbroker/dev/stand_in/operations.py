"""What can be asked of the tree, what comes of it, and ZooKeeper's words for refusals (pure).

Plain tuples: the process that serves them starts in a few hundredths of a second because it loads next to nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

ANY_VERSION = -1
CONTAINER_OWNER = -(1 << 63)
"""`ephemeral_owner` of a container."""


class Code(IntEnum):
    """ZooKeeper's error codes, as far as they can happen here."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121
    RECONFIG_DISABLED = -123


class Refused(Exception):
    """The operation was not carried out, and why."""

    def __init__(self, code: Code, path: str = "") -> None:
        super().__init__(f"{code.name} {path}".rstrip())
        self.code = code


class Stat(NamedTuple):
    """What the tree knows of a node besides its data, in the order of the wire."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    children: int
    pzxid: int


class Identity(NamedTuple):
    """Who a client has proved to be: of scheme "digest", `user:base64(sha1(user:password))`."""

    scheme: str
    id: str


class Acl(NamedTuple):
    """What a scheme's id may do: bits of READ, WRITE, …"""

    permissions: int
    scheme: str
    id: str


READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
ALL = 31
OPEN_ACL = (Acl(ALL, "world", "anyone"),)


class Mode(IntEnum):
    """How a node is made."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_WITH_TTL = 5
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6
    UNKNOWN = 7

    @property
    def is_ephemeral(self) -> bool:
        """Whether the node ends with its session."""
        return self in (Mode.EPHEMERAL, Mode.EPHEMERAL_SEQUENTIAL)

    @property
    def is_sequential(self) -> bool:
        """Whether the parent's counter is appended to the name."""
        return self in (Mode.PERSISTENT_SEQUENTIAL, Mode.EPHEMERAL_SEQUENTIAL)

    @property
    def has_ttl(self) -> bool:
        """Whether the node goes when nothing has happened to it for some time."""
        return self in (Mode.PERSISTENT_WITH_TTL, Mode.PERSISTENT_SEQUENTIAL_WITH_TTL)


class Create(NamedTuple):
    """Make a node. `data=None` is null, which is not the same as empty."""

    path: str
    data: bytes | None = None
    mode: Mode = Mode.PERSISTENT
    acl: tuple[Acl, ...] = OPEN_ACL


class Delete(NamedTuple):
    """Remove a node without children when it has that version."""

    path: str
    version: int = ANY_VERSION


class SetData(NamedTuple):
    """Replace a node's data when it has that version."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class SetAcl(NamedTuple):
    """Replace a node's ACL when the ACL has that version."""

    path: str
    acl: tuple[Acl, ...]
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Do nothing, but be refused when the node has not that version."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Delete | SetData | SetAcl | Check


class Done(NamedTuple):
    """What an operation came to; `stat` is None where the node is gone."""

    path: str
    stat: Stat | None


class EventType(IntEnum):
    """What a watch tells."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class Event(NamedTuple):
    """What happened to a node; `zxid` is -1 where it happened while the watcher was away."""

    type: EventType
    path: str
    zxid: int = -1


# --- what a transaction has changed, for who keeps the tree on a disk ---


class Created(NamedTuple):
    """A node was made under its whole name."""

    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    owner: int


class Deleted(NamedTuple):
    """A node was removed."""

    path: str


class DataSet(NamedTuple):
    """A node's data was replaced."""

    path: str
    data: bytes | None


class AclSet(NamedTuple):
    """A node's ACL was replaced."""

    path: str
    acl: tuple[Acl, ...]


class SessionOpened(NamedTuple):
    """A session began."""

    session_id: int
    timeout_ms: int
    password: bytes


class SessionClosed(NamedTuple):
    """A session ended; its ephemeral nodes were removed before."""

    session_id: int


Change = Created | Deleted | DataSet | AclSet | SessionOpened | SessionClosed


class Transaction(NamedTuple):
    """What happened at once."""

    zxid: int
    time_ms: int
    changes: tuple[Change, ...]

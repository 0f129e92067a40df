"""What can be done to znodes, and what can come of it: values, and the errors every caller may meet (pure).

A write is a list of operations that happen all or not at all (a ZooKeeper multi). The stores (broker_store.py,
controller_store.py) speak in these; zookeeper.py carries them out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

ANY_VERSION = -1


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node. `data=None` is null, which is not the same as empty."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a node's data when it has that version."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node without children when it has that version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Do nothing, but fail the whole when the node has not that version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


class Stat(NamedTuple):
    """What ZooKeeper knows of a node besides its data."""

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


class ZooKeeperError(Exception):
    """Something that ZooKeeper refused, or that became of the connection to it."""


class ZooKeeperUnreachable(ZooKeeperError):
    """No session within the time allowed; the message names the servers and what to do."""


class SessionExpired(ZooKeeperError):
    """The session ended before the operation did: its ephemeral nodes are gone, its outcome is unknown."""


class ControllerMoved(ZooKeeperError):
    """The fencing check failed: another controller was elected, this one's term is over."""


class TooLarge(ZooKeeperError):
    """The request is larger than what the server takes: it can never be carried out; the message says what and why."""


class Unimplemented(ZooKeeperError):
    """The server is too old for this kind of request."""


class BrokerIdTaken(ZooKeeperError):
    """Another live broker is registered under this id; the message says what to do."""


class ZnodeError(ZooKeeperError):
    """An operation that ZooKeeper refused because of the tree's present state; the message is the path."""


class NoNode(ZnodeError):
    """The node, or the parent of the node to be made, does not exist."""


class NodeExists(ZnodeError):
    """The node to be made exists."""


class BadVersion(ZnodeError):
    """The node has another version than the one asked for."""


class NotEmpty(ZnodeError):
    """The node to be removed has children."""


class NotAllowed(ZnodeError):
    """The node's ACL names others."""

    def __str__(self) -> str:
        """In one line, since nobody can go on from here: what to do."""
        return (
            f"ZooKeeper does not allow it at {', '.join(map(str, self.args))}: the node's ACL names others. Brokers "
            "whose nodes are protected (zookeeper.set.acl) all log in at ZooKeeper under the same name"
        )


class RolledBack(ZnodeError):
    """This operation was fine, but another one of the same multi failed, so neither happened."""


Outcome = Stat | str | ZnodeError | None
"""Of one operation: Stat of SetData, path of Create, None of Delete and Check, or why it did not happen."""


class Znodes(ABC):
    """The tree, as the stores see it. Every method retries a lost connection until the session has expired.

    Abstract, as the stores are built on it: what carries it out cannot be made while a method is missing.
    """

    @abstractmethod
    async def sync(self) -> None:
        """Return when what was written before, by whomever, is read here, too: reads are answered by the server that
        one is connected to, which may lag behind the others. One more round trip, to the servers' leader.
        """

    @abstractmethod
    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        """Data and Stat. Raises NoNode."""

    @abstractmethod
    async def get_many(self, paths: Sequence[str], *, watch: bool = False) -> list[tuple[bytes | None, Stat] | None]:
        """Data and Stat of many nodes, in few round trips when no watch is wanted; None where there is no node."""

    @abstractmethod
    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Stat of a node, None where there is none; the watch then tells of its creation."""

    @abstractmethod
    async def children(self, path: str, *, watch: bool = False) -> list[str]:
        """Names of the children, sorted. Raises NoNode."""

    @abstractmethod
    async def children_of_many(self, paths: Sequence[str]) -> list[list[str]]:
        """The children of many nodes, sorted; none where there is no node."""

    @abstractmethod
    async def create(self, path: str, data: bytes | None, *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Make a node and return its path. Raises NodeExists, NoNode."""

    @abstractmethod
    async def create_recursive(self, path: str, data: bytes | None) -> None:
        """Make a node, its parents too (with null data). Raises NodeExists."""

    @abstractmethod
    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace a node's data. Raises NoNode, BadVersion."""

    @abstractmethod
    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node. Raises NoNode, BadVersion, NotEmpty."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        """All of the operations or none: the outcomes hold the errors, nothing is raised for them."""

    @property
    @abstractmethod
    def session_id(self) -> int:
        """The present session."""

    @abstractmethod
    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        """Call back (on the loop) when a watch set on this path fires, and after every reconnection."""

    @abstractmethod
    def unwatch(self, path: str) -> None:
        """Forget the callback."""


def failure(outcomes: Sequence[Outcome]) -> tuple[int, ZnodeError] | None:
    """Index and reason of the operation that made a multi fail; None when it was carried out."""
    rolled_back = None
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, ZnodeError):
            if not isinstance(outcome, RolledBack):
                return index, outcome
            rolled_back = rolled_back or (index, outcome)
    return rolled_back

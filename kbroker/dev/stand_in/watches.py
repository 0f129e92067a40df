"""Who wants to hear of which node: one-shot watches, and the persistent ones of ZooKeeper 3.6 (pure).

Two tables, as in ZooKeeper: data watches (also of nodes that do not exist yet) and child watches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import IntEnum
from typing import Protocol

from kbroker.dev.stand_in.operations import Acl, Event, EventType

STANDARD, PERSISTENT, RECURSIVE = 1, 2, 4
ANY = STANDARD | PERSISTENT | RECURSIVE
"""Bits: a watcher may have a path watched in several ways."""


class Watcher(Protocol):
    """Who is told."""

    def notify(self, event: Event, acl: tuple[Acl, ...]) -> None:
        """Take the event, unless the node's ACL forbids that."""


class WatcherKind(IntEnum):
    """Which watches of a path are meant, when they are removed or looked for."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


class WatchTable:
    """Watchers by path, in the order in which they came."""

    def __init__(self) -> None:
        self._watchers: dict[str, dict[Watcher, int]] = {}
        self._paths: dict[Watcher, dict[str, None]] = {}
        self._recursive = 0

    def add(self, path: str, watcher: Watcher, mode: int = STANDARD) -> None:
        """Let the watcher hear of the path."""
        watchers = self._watchers.setdefault(path, {})
        modes = watchers.get(watcher, 0)
        self._recursive += mode == RECURSIVE and not modes & RECURSIVE
        watchers[watcher] = modes | mode
        self._paths.setdefault(watcher, {})[path] = None

    def has(self, path: str, watcher: Watcher, modes: int = ANY) -> bool:
        """Whether the watcher watches the path in one of the ways."""
        return bool(self._watchers.get(path, {}).get(watcher, 0) & modes)

    def remove(self, path: str, watcher: Watcher, modes: int = ANY) -> bool:
        """Let the watcher no longer watch the path in these ways; whether it did in one of them."""
        if not self.has(path, watcher, modes):
            return False
        watchers = self._watchers[path]
        before = watchers[watcher]
        self._recursive -= bool(before & modes & RECURSIVE)
        watchers[watcher] = before & ~modes
        if not watchers[watcher]:
            del watchers[watcher]
            del self._paths[watcher][path]
            if not watchers:
                del self._watchers[path]
            if not self._paths[watcher]:
                del self._paths[watcher]
        return True

    def forget(self, watcher: Watcher) -> None:
        """Forget all of the watcher's watches."""
        for path in list(self._paths.get(watcher, ())):
            self.remove(path, watcher)

    def trigger(self, path: str) -> list[Watcher]:
        """Return who is to be told of the path; one-shot watches are used up."""
        found: dict[Watcher, None] = {}
        for watcher in list(self._watchers.get(path, ())):
            found[watcher] = None
            self.remove(path, watcher, STANDARD)
        if self._recursive:
            for above in _above(path):
                for watcher, modes in self._watchers.get(above, {}).items():
                    if modes & RECURSIVE:
                        found[watcher] = None
        return list(found)

    def __len__(self) -> int:
        return sum(map(len, self._watchers.values()))


def _above(path: str) -> Iterator[str]:
    while path != "/":
        path = path[: path.rfind("/")] or "/"
        yield path


class Watches:
    """Both tables, and what they make of a change."""

    def __init__(self) -> None:
        self.data = WatchTable()
        self.children = WatchTable()

    def created(self, path: str, parent: str, zxid: int, acl: tuple[Acl, ...], parent_acl: tuple[Acl, ...]) -> None:
        """Tell of a new node."""
        _tell(self.data.trigger(path), Event(EventType.CREATED, path, zxid), acl)
        _tell(self.children.trigger(parent), Event(EventType.CHILDREN_CHANGED, parent, zxid), parent_acl)

    def deleted(self, path: str, parent: str, zxid: int, acl: tuple[Acl, ...], parent_acl: tuple[Acl, ...]) -> None:
        """Tell of a node's end: who watches both its data and its children hears it once."""
        told = self.data.trigger(path)
        _tell(told, Event(EventType.DELETED, path, zxid), acl)
        _tell(self.children.trigger(path), Event(EventType.DELETED, path, zxid), acl, told)
        _tell(self.children.trigger(parent), Event(EventType.CHILDREN_CHANGED, parent, zxid), parent_acl)

    def data_changed(self, path: str, zxid: int, acl: tuple[Acl, ...]) -> None:
        """Tell of new data."""
        _tell(self.data.trigger(path), Event(EventType.DATA_CHANGED, path, zxid), acl)

    def add_persistent(self, path: str, watcher: Watcher, *, recursive: bool) -> None:
        """Watch for good: a node and its children, or a node and all below it."""
        self.data.add(path, watcher, RECURSIVE if recursive else PERSISTENT)
        if not recursive:
            self.children.add(path, watcher, PERSISTENT)

    def has(self, path: str, watcher: Watcher, kind: WatcherKind) -> bool:
        """Whether there is such a watch."""
        tables, modes = self._tables(kind)
        return any(table.has(path, watcher, modes) for table in tables)

    def remove(self, path: str, watcher: Watcher, kind: WatcherKind) -> bool:
        """Remove such watches; whether there were any."""
        tables, modes = self._tables(kind)
        removed = [table.remove(path, watcher, modes) for table in tables]
        return any(removed)

    def forget(self, watcher: Watcher) -> None:
        """Forget a watcher that has gone."""
        self.data.forget(watcher)
        self.children.forget(watcher)

    def _tables(self, kind: WatcherKind) -> tuple[list[WatchTable], int]:
        if kind is WatcherKind.CHILDREN:
            return [self.children], STANDARD
        if kind is WatcherKind.DATA:
            return [self.data], STANDARD
        if kind is WatcherKind.PERSISTENT:
            return [self.data, self.children], PERSISTENT
        return [self.data, self.children], RECURSIVE if kind is WatcherKind.PERSISTENT_RECURSIVE else ANY

    def __len__(self) -> int:
        return len(self.data) + len(self.children)


def _tell(watchers: Collection[Watcher], event: Event, acl: tuple[Acl, ...], but: Collection[Watcher] = ()) -> None:
    for watcher in watchers:
        if watcher not in but:
            watcher.notify(event, acl)

"""Who is told of what, how often, in which order."""

from kbroker.dev.stand_in.operations import OPEN_ACL, Acl, Event, EventType
from kbroker.dev.stand_in.watches import WatcherKind, Watches

CREATED, DELETED = EventType.CREATED, EventType.DELETED
CHANGED, CHILDREN = EventType.DATA_CHANGED, EventType.CHILDREN_CHANGED


class Heard:
    """A watcher that remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[tuple[EventType, str]] = []

    def notify(self, event: Event, acl: tuple[Acl, ...]) -> None:
        assert acl == OPEN_ACL
        self.events.append((event.type, event.path))

    def take(self) -> list[tuple[EventType, str]]:
        events, self.events = self.events, []
        return events


def create(watches: Watches, path: str) -> None:
    watches.created(path, path[: path.rfind("/")] or "/", 1, OPEN_ACL, OPEN_ACL)


def delete(watches: Watches, path: str) -> None:
    watches.deleted(path, path[: path.rfind("/")] or "/", 1, OPEN_ACL, OPEN_ACL)


def test_a_watch_tells_once() -> None:
    watches, ann, bob = Watches(), Heard(), Heard()
    watches.data.add("/a", ann)
    watches.data.add("/a", ann)
    watches.data.add("/a", bob)
    watches.data_changed("/a", 1, OPEN_ACL)
    watches.data_changed("/a", 2, OPEN_ACL)
    assert ann.events == bob.events == [(CHANGED, "/a")]
    assert len(watches) == 0


def test_a_new_node_is_told_to_its_watchers_first_and_then_to_its_parents() -> None:
    watches, ann = Watches(), Heard()
    watches.children.add("/", ann)
    watches.data.add("/a", ann)
    create(watches, "/a")
    assert ann.events == [(CREATED, "/a"), (CHILDREN, "/")]


def test_who_watches_data_and_children_hears_of_the_end_once() -> None:
    watches, ann, bob = Watches(), Heard(), Heard()
    watches.data.add("/a", ann)
    watches.children.add("/a", ann)
    watches.children.add("/a", bob)
    delete(watches, "/a")
    assert ann.events == bob.events == [(DELETED, "/a")]
    assert len(watches) == 0


def test_a_persistent_watch_goes_on_telling_of_data_and_children() -> None:
    watches, ann = Watches(), Heard()
    watches.add_persistent("/a", ann, recursive=False)
    watches.data.add("/a", ann)
    for _ in range(2):
        create(watches, "/a")
        create(watches, "/a/b")
        watches.data_changed("/a", 1, OPEN_ACL)
        watches.data_changed("/a/b", 1, OPEN_ACL)
        delete(watches, "/a")
        assert ann.take() == [(CREATED, "/a"), (CHILDREN, "/a"), (CHANGED, "/a"), (DELETED, "/a")]


def test_a_recursive_watch_tells_of_all_below_but_not_of_children_changed() -> None:
    watches, ann = Watches(), Heard()
    watches.add_persistent("/a", ann, recursive=True)
    create(watches, "/a/b/c")
    watches.data_changed("/ab", 1, OPEN_ACL)
    delete(watches, "/a/b/c")
    assert ann.take() == [(CREATED, "/a/b/c"), (DELETED, "/a/b/c")]
    assert watches.remove("/a", ann, WatcherKind.ANY)
    create(watches, "/a/b")
    assert ann.events == []


def test_watches_are_removed_by_kind_and_with_their_watcher() -> None:
    watches, ann, bob = Watches(), Heard(), Heard()
    for watcher in (ann, bob):
        watches.data.add("/a", watcher)
        watches.children.add("/a", watcher)
        watches.add_persistent("/a", watcher, recursive=False)
        watches.add_persistent("/a", watcher, recursive=True)
    for kind in (WatcherKind.DATA, WatcherKind.CHILDREN, WatcherKind.PERSISTENT, WatcherKind.PERSISTENT_RECURSIVE):
        assert watches.has("/a", ann, kind)
        assert watches.remove("/a", ann, kind)
        assert not watches.has("/a", ann, kind)
        assert not watches.remove("/a", ann, kind)
    assert not watches.has("/a", ann, WatcherKind.ANY)
    assert watches.has("/a", bob, WatcherKind.ANY)
    watches.forget(bob)
    assert len(watches) == 0
    watches.data_changed("/a", 1, OPEN_ACL)
    assert ann.events == bob.events == []

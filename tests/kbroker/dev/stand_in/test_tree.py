"""ZooKeeper's tree: versions, sequences, ephemerals, multis, watches."""

import random
from typing import Any

import pytest

from kbroker.dev.stand_in.operations import (
    CONTAINER_OWNER,
    OPEN_ACL,
    READ,
    WRITE,
    Acl,
    Check,
    Code,
    Create,
    Delete,
    Event,
    EventType,
    Identity,
    Mode,
    Operation,
    Refused,
    SetAcl,
    SetData,
    Transaction,
)
from kbroker.dev.stand_in.tree import ABOUT, Client, Tree

ANN = Identity("digest", "ann:x=")
US, THEM = Client(1), Client(2)


class Heard:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[EventType, str, int]] = []

    def notify(self, event: Event, acl: tuple[Acl, ...]) -> None:
        kind, path, state = event
        self.events.append((kind, path, state))


@pytest.fixture
def tree() -> Tree:
    tree = Tree()
    for session_id in (1, 2):
        tree.open_session(session_id, 6000, b"p", now_ms=0)
    return tree


def refusal(tree: Tree, operation: Operation, client: Client = US) -> Code:
    before = state(tree)
    with pytest.raises(Refused) as refused:
        tree.write(operation, client, now_ms=9)
    assert state(tree) == before
    tree.check()
    return refused.value.code


def state(tree: Tree) -> dict[str, Any]:
    """All there is to know but the zxid."""
    nodes = {path: (node.stat(), node.cversion, node.data, node.acl) for path, node in tree.nodes.items()}
    return {**nodes, "sessions": {each: sorted(session.ephemerals) for each, session in tree.sessions.items()}}


def test_a_write_is_stamped_with_its_zxid_and_time(tree: Tree) -> None:
    tree.write(Create("/a", b"one"), US, now_ms=10)
    tree.write(SetData("/a", b"three"), US, now_ms=20)
    tree.write(Create("/a/b", None), US, now_ms=30)
    stat = tree.stat("/a", US)
    assert (stat.czxid, stat.mzxid, stat.pzxid) == (3, 4, 5)
    assert (stat.ctime_ms, stat.mtime_ms) == (10, 20)
    assert (stat.version, stat.cversion, stat.aversion) == (1, 1, 0)
    assert (stat.data_length, stat.children, stat.ephemeral_owner) == (5, 1, 0)
    tree.write(Delete("/a/b"), US, now_ms=40)
    stat = tree.stat("/a", US)
    assert (stat.cversion, stat.children, stat.pzxid, stat.mzxid) == (2, 0, 6, 4)


def test_null_is_not_empty(tree: Tree) -> None:
    tree.write(Create("/null", None), US, now_ms=1)
    tree.write(Create("/empty", b""), US, now_ms=1)
    assert tree.data("/null", US)[0] is None
    assert tree.data("/empty", US)[0] == b""


def test_sequential_names_count_the_children_ever_made(tree: Tree) -> None:
    tree.write(Create("/q"), US, now_ms=1)
    made = [tree.write(Create("/q/n-", mode=Mode.PERSISTENT_SEQUENTIAL), US, now_ms=1).path for _ in range(2)]
    tree.write(Delete(made[0]), US, now_ms=1)
    made.append(tree.write(Create("/q/", mode=Mode.EPHEMERAL_SEQUENTIAL), US, now_ms=1).path)
    assert made == ["/q/n-0000000000", "/q/n-0000000001", "/q/0000000002"]


def test_ephemeral_nodes_end_with_their_session_in_one_transaction(tree: Tree) -> None:
    tree.write(Create("/a", mode=Mode.EPHEMERAL), US, now_ms=1)
    tree.write(Create("/b", mode=Mode.EPHEMERAL), US, now_ms=1)
    tree.write(Create("/c", mode=Mode.EPHEMERAL), THEM, now_ms=1)
    assert tree.ephemerals(1) == ["/a", "/b"]
    assert tree.ephemerals(1, "/b") == ["/b"]
    heard = Heard()
    tree.stat("/b", THEM, heard)
    zxid = tree.zxid
    tree.close_session(1, now_ms=2)
    tree.close_session(1, now_ms=3)
    assert tree.zxid == zxid + 1
    assert heard.events == [(EventType.DELETED, "/b", zxid + 1)]
    assert tree.children("/", US)[0] == ["c", "zookeeper"]
    assert refusal(tree, Create("/a")) is Code.SESSION_EXPIRED
    tree.check()


def test_what_cannot_be_is_refused_and_changes_nothing(tree: Tree) -> None:
    tree.write(Create("/a"), US, now_ms=1)
    tree.write(Create("/a/b"), US, now_ms=1)
    tree.write(Create("/e", mode=Mode.EPHEMERAL), US, now_ms=1)
    assert refusal(tree, Create("/a")) is Code.NODE_EXISTS
    assert refusal(tree, Create("/x/y")) is Code.NO_NODE
    assert refusal(tree, Create("/e/child")) is Code.NO_CHILDREN_FOR_EPHEMERALS
    assert refusal(tree, Create("a")) is Code.BAD_ARGUMENTS
    assert refusal(tree, Create("/a/../b")) is Code.NO_NODE
    assert refusal(tree, Create("/", mode=Mode.EPHEMERAL)) is Code.NODE_EXISTS
    assert refusal(tree, Create("/y", acl=())) is Code.INVALID_ACL
    assert refusal(tree, Create("/y", mode=Mode.UNKNOWN)) is Code.BAD_ARGUMENTS
    assert refusal(tree, Create("/y", mode=Mode.PERSISTENT_WITH_TTL)) is Code.UNIMPLEMENTED
    assert refusal(tree, Delete("/a")) is Code.NOT_EMPTY
    assert refusal(tree, Delete("/a/b", 1)) is Code.BAD_VERSION
    assert refusal(tree, Delete("/nowhere")) is Code.NO_NODE
    assert refusal(tree, Delete("/zookeeper")) is Code.BAD_ARGUMENTS
    assert refusal(tree, SetData("/a", b"", 7)) is Code.BAD_VERSION
    assert refusal(tree, SetData("/a/", b"")) is Code.BAD_ARGUMENTS
    assert refusal(tree, Check("/a", 7)) is Code.BAD_VERSION
    assert refusal(tree, SetAcl("/a", OPEN_ACL, 1)) is Code.BAD_VERSION
    for read in (tree.data, tree.children, tree.acl, tree.count_below, tree.stat):
        with pytest.raises(Refused, match="NO_NODE /nowhere"):
            read("/nowhere", US)


def test_a_refused_write_has_a_zxid_too(tree: Tree) -> None:
    zxid = tree.zxid
    refusal(tree, Delete("/nowhere"))
    tree.write_all([Delete("/nowhere")], US, now_ms=1)
    assert tree.zxid == zxid + 2


def test_all_operations_of_a_multi_happen_at_once(tree: Tree) -> None:
    heard = Heard()
    with pytest.raises(Refused):
        tree.stat("/a", THEM, heard)
    outcomes = tree.write_all(
        [Create("/a", b"1"), SetData("/a", b"22"), Check("/a", 1), Create("/a/b"), Delete("/a/b")], US, now_ms=5
    )
    assert [outcome.path for outcome in outcomes if not isinstance(outcome, Refused)] == ["/a"] * 3 + ["/a/b"] * 2
    stat = tree.stat("/a", US)
    assert stat.czxid == stat.mzxid == stat.pzxid == tree.zxid
    assert heard.events == [(EventType.CREATED, "/a", tree.zxid)]
    tree.check()


def test_a_multi_of_which_one_is_refused_leaves_nothing(tree: Tree) -> None:
    tree.write(Create("/a", b"before"), US, now_ms=1)
    tree.write(Create("/gone", b"x"), US, now_ms=1)
    heard, told = Heard(), list[Transaction]()
    tree.data("/a", THEM, heard)
    tree.on_commit = told.append
    before = state(tree)
    outcomes = tree.write_all(
        [
            SetData("/a", b"after"),
            Create("/a/n-", mode=Mode.EPHEMERAL_SEQUENTIAL),
            Delete("/gone"),
            Check("/a", 7),
            SetData("/a", b"x"),
        ],
        US,
        now_ms=2,
    )
    codes = [outcome.code for outcome in outcomes if isinstance(outcome, Refused)]
    assert codes == [Code.OK] * 3 + [Code.BAD_VERSION, Code.RUNTIME_INCONSISTENCY]
    assert state(tree) == before
    assert (heard.events, told) == ([], [])
    tree.check()


def test_one_shot_watches_are_set_by_reads(tree: Tree) -> None:
    data, exists, children = Heard(), Heard(), Heard()
    with pytest.raises(Refused):
        tree.stat("/a", US, exists)
    for read in (tree.data, tree.children):
        with pytest.raises(Refused):
            read("/a", US, data)
    tree.write(Create("/a"), THEM, now_ms=1)
    tree.data("/a", US, data)
    tree.children("/a", US, children)
    tree.write(SetData("/a", b""), THEM, now_ms=1)
    tree.write(Create("/a/b"), THEM, now_ms=1)
    tree.write(Create("/a/c"), THEM, now_ms=1)
    assert [event[:2] for event in exists.events] == [(EventType.CREATED, "/a")]
    assert [event[:2] for event in data.events] == [(EventType.DATA_CHANGED, "/a")]
    assert [event[:2] for event in children.events] == [(EventType.CHILDREN_CHANGED, "/a")]


def test_acls_are_kept_checked_and_shown_to_those_who_may_see_them(tree: Tree) -> None:
    ann = Client(1, (ANN,))
    tree.write(Create("/a", b"x", acl=(Acl(31, "auth", ""), Acl(READ, "world", "anyone"))), ann, now_ms=1)
    assert tree.acl("/a", ann)[0] == (Acl(31, *ANN), Acl(READ, "world", "anyone"))
    assert tree.acl("/a", THEM)[0] == (Acl(31, "digest", "ann:x"), Acl(READ, "world", "anyone"))
    for operation in (SetData("/a", b""), SetAcl("/a", OPEN_ACL), Create("/a/b")):
        assert refusal(tree, operation, THEM) is Code.NO_AUTH
    tree.write(Create("/a/b"), ann, now_ms=1)
    assert refusal(tree, Delete("/a/b"), THEM) is Code.NO_AUTH
    assert tree.write(SetAcl("/a", (Acl(WRITE, "world", "anyone"),), 0), ann, now_ms=1).stat == tree.nodes["/a"].stat()
    assert tree.nodes["/a"].aversion == 1
    for read in (tree.data, tree.children, tree.stat, tree.acl, tree.count_below):
        with pytest.raises(Refused, match="NO_AUTH"):
            read("/a", THEM)


def test_a_container_goes_after_its_last_child(tree: Tree) -> None:
    tree.write(Create("/c", mode=Mode.CONTAINER), US, now_ms=1)
    assert tree.stat("/c", US).ephemeral_owner == CONTAINER_OWNER
    assert tree.remove_empty_containers(now_ms=2) == []
    tree.write(Create("/c/x"), US, now_ms=1)
    assert tree.remove_empty_containers(now_ms=2) == []
    tree.write(Delete("/c/x"), US, now_ms=1)
    assert tree.remove_empty_containers(now_ms=2) == ["/c"]
    tree.check()


def test_it_says_that_it_is_no_real_zookeeper(tree: Tree) -> None:
    assert tree.data("/zookeeper/stand-in", US)[0] == ABOUT
    assert refusal(tree, SetData("/zookeeper/stand-in", b"")) is Code.NO_AUTH
    assert refusal(tree, Delete("/zookeeper/stand-in")) is Code.BAD_ARGUMENTS
    assert tree.count_below("/", US) == 4
    assert tree.count_below("/zookeeper", US) == 3


def test_a_version_never_becomes_the_one_that_means_any(tree: Tree) -> None:
    tree.write(Create("/a"), US, now_ms=1)
    tree.nodes["/a"].version = (1 << 31) - 1
    versions = []
    for _ in range(2):
        tree.write(SetData("/a", b""), US, now_ms=1)
        versions.append(tree.nodes["/a"].version)
    assert versions == [-(1 << 31), -(1 << 31) + 1]
    tree.nodes["/a"].version = -2
    tree.write(SetData("/a", b""), US, now_ms=1)
    assert tree.nodes["/a"].version == 0


def drawn(rng: random.Random) -> Operation:
    path = "/" + "/".join(rng.choices("abc", k=rng.choice([1, 1, 1, 2, 2, 3])))
    version = rng.choice([-1, -1, -1, 0, 1])
    operations: list[Operation] = [
        Create(path, rng.choice([None, b"", b"x"]), rng.choice(list(Mode)[:5])),
        Create(path, b"x"),
        Delete(path, version),
        SetData(path, bytes([rng.randint(0, 9)]), version),
        Check(path, version),
    ]
    return rng.choice(operations)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_a_refusal_leaves_no_trace_and_a_replay_gives_the_same_tree(tree: Tree, seed: int) -> None:
    rng, told = random.Random(seed), list[Transaction]()
    tree.on_commit = told.append
    for now_ms in range(200):
        if rng.random() < 0.05:
            tree.close_session(session_id := rng.choice([1, 2]), now_ms)
            tree.open_session(session_id, 6000, b"p", now_ms)
        elif rng.random() < 0.05:
            tree.remove_empty_containers(now_ms)
        before = state(tree)
        operations = [drawn(rng) for _ in range(rng.randint(1, 4))]
        outcomes = tree.write_all(operations, rng.choice([US, THEM]), now_ms)
        if any(isinstance(outcome, Refused) for outcome in outcomes):
            assert state(tree) == before
        tree.check()
    again = Tree()
    for session_id in (1, 2):
        again.open_session(session_id, 6000, b"p", now_ms=0)
    for transaction in told:
        again.replay(transaction)
    again.check()
    assert state(again) == state(tree)
    assert len(told) > 10

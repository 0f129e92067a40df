"""ZooKeeper's multi requests, byte by byte against kazoo's own writing of them."""

from __future__ import annotations

import struct

from kazoo.protocol import serialization
from kazoo.security import OPEN_ACL_UNSAFE

from kbroker.controller.multi_codec import (
    BYTES_PER_MULTI,
    OPERATIONS_PER_MULTI,
    READS_PER_REQUEST,
    Multi,
    ReadChildren,
    ReadData,
    encoded_size,
    multis,
    reads,
)
from kbroker.controller.znode_operations import (
    Check,
    Create,
    Delete,
    NoNode,
    Operation,
    RolledBack,
    SetData,
    Stat,
    ZnodeError,
)

END = struct.pack("!i?i", -1, True, -1)


def test_a_multi_is_written_as_kazoo_writes_it() -> None:
    creations = [Create("/a", b"1", ephemeral=True), Create("/b")]
    ours = Multi([*creations, SetData("/a", b"2", 3), Delete("/a", 1), Check("/a", 2)])
    theirs = serialization.Transaction(
        [
            serialization.Create("/a", b"1", OPEN_ACL_UNSAFE, 1),
            serialization.Create("/b", None, OPEN_ACL_UNSAFE, 0),
            serialization.SetData("/a", b"2", 3),
            serialization.Delete("/a", 1),
            serialization.CheckVersion("/a", 2),
        ]
    )
    assert ours.serialize() == bytes(theirs.serialize())


def test_the_size_of_an_operation_is_known_before_it_is_written() -> None:
    operations: list[Operation] = [
        Create("/ä", b"1", ephemeral=True),
        Create("/b"),
        SetData("/a", b"22", 3),
        SetData("/a", None),
    ]
    for operation in [*operations, Delete("/a", 1), Check("/a", 2)]:
        assert encoded_size(operation) == len(Multi([operation]).serialize()) - len(Multi([]).serialize())
    whole = Multi([*operations, Delete("/a", 1)], "/chroot")
    assert whole.size == len(whole.serialize())


def test_operations_are_cut_by_size_and_number_their_groups_kept_together() -> None:
    pairs = [each for number in range(5) for each in (Create(f"/{number}"), Create(f"/{number}/data", bytes(300_000)))]
    assert [len(multi) for multi in multis(pairs, group=2)] == [2] * 5
    small = [Delete(f"/{number}") for number in range(2 * OPERATIONS_PER_MULTI)]
    assert [len(multi) for multi in multis(small)] == [OPERATIONS_PER_MULTI] * 2
    fence = encoded_size(Check("/controller_epoch", 1))
    filling: list[Operation] = [SetData("/a", bytes(BYTES_PER_MULTI - encoded_size(SetData("/a", b"")))), Delete("/a")]
    assert [len(multi) for multi in multis(filling, reserved=fence)] == [1, 1]
    assert [len(multi) for multi in multis([])] == []


def test_reads_are_cut_by_size_and_number() -> None:
    few, many = ["/a"] * 3, ["/a"] * (2 * READS_PER_REQUEST + 1)
    long = [f"/{'#' * 150_000}"] * 5
    assert [len(run) for run in reads([])] == []
    assert [len(run) for run in reads(few)] == [3]
    assert [len(run) for run in reads(many)] == [READS_PER_REQUEST, READS_PER_REQUEST, 1]
    assert [len(run) for run in reads(long)] == [2, 2, 1]
    assert [len(run) for run in reads([f"/{'#' * 500_000}", "/a"])] == [1, 1], "what is larger goes by itself"
    assert ReadData(long[:2]).size == len(ReadData(long[:2]).serialize())


def test_a_failed_multi_tells_which_operation_failed() -> None:
    header = struct.pack("!i?i", -1, False, 0)
    codes = (0, -101, -2, -999)
    data = b"".join(header + struct.pack("!i", code) for code in codes) + END
    outcomes = Multi([Check("/a", 1), Delete("/b"), Delete("/c"), Delete("/d")]).deserialize(data, 0)
    assert [type(each) for each in outcomes] == [RolledBack, NoNode, RolledBack, ZnodeError]
    assert str(outcomes[1]) == "/b"


def test_the_chroot_is_put_before_and_taken_away() -> None:
    multi = Multi([Create("/a")], "/kafka")
    assert b"/kafka/a" in multi.serialize()
    path = b"/kafka/a"
    data = struct.pack("!i?i", 1, False, 0) + struct.pack("!i", len(path)) + path + END
    assert multi.deserialize(data, 0) == ["/a"]


def test_many_nodes_are_read_and_missing_ones_told() -> None:
    stat = Stat(*range(1, 12))
    node = struct.pack("!i?i", 4, False, 0) + struct.pack("!i", 2) + b"xy" + struct.pack("!qqqqiiiqiiq", *stat)
    null = struct.pack("!i?i", 4, False, 0) + struct.pack("!i", -1) + struct.pack("!qqqqiiiqiiq", *stat)
    missing = struct.pack("!i?i", -1, False, 0) + struct.pack("!i", -101)
    assert ReadData(["/a", "/b", "/c"]).deserialize(node + missing + null + END, 0) == [
        (b"xy", stat),
        None,
        (None, stat),
    ]


def test_children_come_sorted() -> None:
    names = struct.pack("!i", 2) + b"".join(struct.pack("!i", 1) + each for each in (b"b", b"a"))
    missing = struct.pack("!i?i", -1, False, 0) + struct.pack("!i", -101)
    data = struct.pack("!i?i", 8, False, 0) + names + missing + END
    assert ReadChildren(["/a", "/b"]).deserialize(data, 0) == [["a", "b"], []]


def test_an_operations_size_is_not_underestimated() -> None:
    for operation in (Create("/a" * 50, b"x" * 100), SetData("/a", b"x" * 100), Delete("/abc"), Check("/abc", 1)):
        assert encoded_size(operation) >= len(Multi([operation]).serialize()) - len(END)

"""What a new coordinator makes of a log: later records win, transactions, tombstones, damage."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.coordinator.any_group import GroupMaker
from kbroker.coordinator.consumer_group import ConsumerGroup, ConsumerHeartbeat, ConsumerSettings
from kbroker.coordinator.group import Group
from kbroker.coordinator.group_events import GroupSettings
from kbroker.coordinator.group_life import GroupState
from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.coordinator.group_story import GroupStories
from kbroker.coordinator.loading import load, make_groups
from kbroker.coordinator.offsets_records import commit_key, commit_value, group_key, group_value
from kbroker.protocol.messages.internal_topics import GroupMetadataValue
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.log import AppendOrigin, Log
from tests.fixtures.data_path import TOPIC, Played

KEY = ("t", 0)
MAKER = GroupMaker(GroupSettings(), ConsumerSettings(), MetadataCache(), GroupStories(5))


def value(offset: int) -> bytes:
    return commit_value(CommittedOffset(offset, -1, "", 5))


class Written:
    """A log of group records."""

    def __init__(self, partition_log: Log) -> None:
        self.log = partition_log
        self.sequences: dict[int, int] = {}

    def add(self, *records: tuple[bytes | None, bytes | None], producer_id: int = -1) -> None:
        builder = BatchBuilder(1 << 20)
        for key, content in records:
            builder.append(key, content, (), 1)
        if producer_id < 0:
            batch = builder.build()
        else:
            sequence = self.sequences.get(producer_id, 0)
            batch = builder.build(producer_id, 0, sequence, transactional=True)
            self.sequences[producer_id] = sequence + len(records)
        self.log.append_as_leader(batch, 0, 1, AppendOrigin.COORDINATOR)

    def end(self, producer_id: int, decision: ControlType) -> None:
        self.log.append_as_leader(control_batch(decision, producer_id, 0, 0, 1), 0, 1, AppendOrigin.COORDINATOR)

    def offsets(self, group_id: str = "g") -> dict[tuple[str, int], int]:
        groups = make_groups(load(self.log, 1 << 20), MAKER, 0, 0)
        return {key: each.offset for key, each in groups[group_id].offsets.committed.items()}


@pytest.fixture
async def written(tmp_path: Path) -> AsyncIterator[Written]:
    played = Played(tmp_path)
    await played.lead()
    partition_log = played.logs.get(TOPIC, 0)
    assert partition_log is not None
    yield Written(partition_log)
    await played.close()


def test_the_last_commit_wins_and_tombstones_remove(written: Written) -> None:
    written.add((commit_key("g", "t", 0), value(1)), (commit_key("g", "t", 1), value(2)))
    written.add((commit_key("g", "t", 0), value(3)), (commit_key("g", "t", 1), None))
    assert written.offsets() == {KEY: 3}


def test_commits_of_other_forms_take_their_place_among_the_usual_ones(written: Written) -> None:
    old_key = b"\0\0" + commit_key("g", "t", 0)[2:]
    expiring = commit_value(CommittedOffset(8, -1, "", 5, 99))
    written.add((old_key, value(1)), (commit_key("g", "t", 0), value(2)), (commit_key("g", "t", 1), value(3)))
    assert written.offsets() == {KEY: 2, ("t", 1): 3}
    written.add((commit_key("g", "t", 0), expiring), (commit_key("g", "t", 1), expiring))
    written.add((commit_key("g", "t", 1), value(4)))
    assert written.offsets() == {KEY: 8, ("t", 1): 4}
    written.add((old_key, None))
    assert written.offsets() == {("t", 1): 4}


def test_a_transaction_replaces_the_plain_commit_before_it(written: Written) -> None:
    written.add((commit_key("g", "t", 0), value(1)))
    written.add((commit_key("g", "t", 0), value(2)), producer_id=7)
    written.end(7, ControlType.COMMIT)
    assert written.offsets() == {KEY: 2}


def test_a_small_buffer_reads_the_same(written: Written) -> None:
    for number in range(100):
        written.add((commit_key("g", "t", number % 7), value(number)))
    loaded = load(written.log, 1)
    assert loaded.records == 100
    assert {key[1]: each.offset for key, each in loaded.offsets["g"].committed.items()} == {
        number % 7: number for number in range(93, 100)
    }


def test_offsets_of_transactions_count_with_their_marker(written: Written) -> None:
    written.add((commit_key("g", "t", 0), value(1)), producer_id=7)
    written.add((commit_key("g", "t", 1), value(2)), producer_id=8)
    written.add((commit_key("g", "t", 2), value(3)), producer_id=9)
    written.end(7, ControlType.COMMIT)
    written.end(8, ControlType.ABORT)
    assert written.offsets() == {KEY: 1}
    group = make_groups(load(written.log, 1 << 20), MAKER, 0, 0)["g"]
    assert group.offsets.is_unstable(("t", 2))
    assert not group.offsets.is_unstable(("t", 1))


def test_a_plain_commit_behind_a_transactions_outlives_it(written: Written) -> None:
    written.add((commit_key("g", "t", 0), value(1)), producer_id=7)
    written.add((commit_key("g", "t", 0), value(2)))
    written.end(7, ControlType.COMMIT)
    assert written.offsets() == {KEY: 2}


@pytest.mark.parametrize("key", [commit_key("g", "t", 0), b"\0\0" + commit_key("g", "t", 0)[2:]])
def test_a_removal_goes_for_what_came_before_it_whenever_that_is_decided(written: Written, key: bytes) -> None:
    written.add((commit_key("g", "t", 0), value(1)), (commit_key("g", "t", 1), value(1)))
    for producer_id in (7, 8, 9):
        written.add((commit_key("g", "t", 0), value(producer_id)), producer_id=producer_id)
    written.end(7, ControlType.COMMIT)
    written.add((key, None))
    written.end(8, ControlType.COMMIT)
    loaded = load(written.log, 1 << 20)
    group = make_groups(loaded, MAKER, 0, 0)["g"]
    assert group.offsets.committed.keys() == {("t", 1)}
    assert not group.offsets.is_waiting
    written.add((commit_key("g", "t", 0), value(2)), producer_id=9)
    written.end(9, ControlType.COMMIT)
    assert written.offsets() == {KEY: 2, ("t", 1): 1}


def test_a_group_of_which_only_removed_offsets_wait_for_a_marker_is_not_there(written: Written) -> None:
    for group_id in ("gone", "left"):
        written.add((commit_key(group_id, "t", 0), value(1)), (commit_key(group_id, "t", 1), value(2)), producer_id=7)
    written.add((commit_key("never", "t", 0), None), producer_id=7)
    written.add((commit_key("gone", "t", 0), None), (commit_key("gone", "t", 1), None))
    written.add((commit_key("left", "t", 0), None))
    groups = make_groups(load(written.log, 1 << 20), MAKER, 0, 0)
    assert {group_id: list(group.offsets.all_keys()) for group_id, group in groups.items()} == {"left": [("t", 1)]}


def test_groups_with_members_go_on_stable_and_without_empty(written: Written) -> None:
    member = GroupMetadataValue.MemberMetadata(
        member_id="m",
        group_instance_id="one",
        client_id="c",
        client_host="/h",
        rebalance_timeout=5,
        session_timeout=6,
        subscription=b"s",
        assignment=b"a",
    )
    full = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        current_state_timestamp=77,
        members=[member],
    )
    empty = GroupMetadataValue(
        protocol_type="consumer", generation=4, protocol=None, leader=None, current_state_timestamp=-1, members=[]
    )
    written.add((group_key("full"), group_value(full)), (group_key("gone"), group_value(full)))
    written.add((group_key("empty"), group_value(empty)), (group_key("gone"), None))
    written.add((commit_key("simple", "t", 0), value(1)))
    groups = make_groups(load(written.log, 1 << 20), MAKER, 0, 3)
    assert groups.keys() == {"full", "empty", "simple"}
    assert {group.partition for group in groups.values()} == {3}
    found, without = groups["full"], groups["empty"]
    assert isinstance(found, Group)
    assert isinstance(without, Group)
    assert (found.state, found.generation_id, found.leader, found.state_since) == (GroupState.STABLE, 3, "m", 77)
    assert (found.protocol_type, found.protocol_name) == ("consumer", "range")
    assert found.static_members == {"one": "m"}
    assert (without.state, without.generation_id) == (GroupState.EMPTY, 4)
    assert without.state_since is None
    assert groups["simple"].protocol_type is None
    for group in groups.values():
        group.start(0)
        group.check()


@pytest.mark.parametrize(
    ("key", "content"),
    [
        (None, b"x"),
        (b"\0\1\0\7g", b"x"),
        (commit_key("g", "t", 0), b"\0\3short"),
        (commit_key("g", "t", 0), b"\0\x63" + bytes(40)),
        (group_key("g"), b"\0\3\0"),
    ],
)
def test_a_record_that_cannot_be_read_is_told_and_left_out(
    written: Written, caplog: pytest.LogCaptureFixture, key: bytes | None, content: bytes
) -> None:
    written.add((commit_key("g", "t", 1), value(5)), (key, content), (commit_key("g", "t", 2), value(6)))
    with caplog.at_level(logging.ERROR):
        assert written.offsets() == {("t", 1): 5, ("t", 2): 6}
    assert "offset 1 is left out" in caplog.text


def test_records_of_protocols_to_come_are_passed_over(written: Written, caplog: pytest.LogCaptureFixture) -> None:
    written.add((b"\0\x40\0\1g\0\1m", b"\0\0"), (commit_key("g", "t", 2), value(6)))
    assert written.offsets() == {("t", 2): 6}
    assert not caplog.records


def test_a_group_of_the_newer_protocol_is_read_with_its_offsets(written: Written) -> None:
    group = MAKER.consumer("g", 0)
    group.heartbeat(ConsumerHeartbeat("a", 0, "one", topic_names=frozenset({"t"}), topic_regex="t.*", owned={}), 0)
    written.add(*group.take_records(), (commit_key("g", "t", 2), value(6)))
    read = make_groups(load(written.log, 1 << 20), MAKER, 0, 0)["g"]
    assert isinstance(read, ConsumerGroup)
    read.start(0)
    read.check()
    assert (read.epoch, read.members["a"].epoch, read.members["a"].topic_regex) == (1, 1, "t.*")
    assert read.static_members == {"one": "a"}
    assert written.offsets() == {("t", 2): 6}
    written.add(*group.tombstones())
    assert not isinstance(make_groups(load(written.log, 1 << 20), MAKER, 0, 0)["g"], ConsumerGroup)


def test_a_damaged_batch_does_not_hide_the_others(written: Written, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        written.add((commit_key("g", "t", number), value(number)))
    written.log.flush()
    (segment,) = (path for path in Path(written.log.directory).glob("*.log"))
    data = bytearray(segment.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    data[second + 70] ^= 0xFF
    segment.write_bytes(data)
    assert written.offsets() == {("t", 0): 0, ("t", 2): 2}
    assert "the batch at offset 1 does not match its checksum" in caplog.text


def test_reading_stops_when_nobody_wants_it_any_more(written: Written) -> None:
    written.add((commit_key("g", "t", 0), value(1)))
    assert load(written.log, 1 << 20, lambda: False).records == 0

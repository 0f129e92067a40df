"""The coordinator on real logs: what clients are told, what is written, what another coordinator finds."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.coordinator import group_coordinator
from kbroker.coordinator.group import Group
from kbroker.coordinator.group_coordinator import SMALLEST_COMMIT_BYTES, new_member_id
from kbroker.coordinator.group_events import Leaving
from kbroker.coordinator.group_life import GroupState
from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.coordinator.offsets_records import commit_key, commit_value, group_key, read_group, read_key
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.batch import HEADER_SIZE
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.replica.clocks import steady_ms
from tests.controller.conftest import until
from tests.kbroker.coordinator.conftest import PARTITIONS, Coordinated

KEY = ("t", 0)
OFFSET = CommittedOffset(42, 3, "note", 999_000)


def committed(coordinated: Coordinated, group_id: str) -> dict[tuple[str, int], int]:
    group, error = coordinated.groups.committed(group_id)
    assert error is ErrorCode.NONE
    return {} if group is None else {key: each.offset for key, each in group.offsets.committed.items()}


async def test_a_member_joins_syncs_and_the_group_is_written_as_kafka_does(coordinated: Coordinated) -> None:
    joined = await coordinated.join("g")
    assert (joined.error, joined.generation_id, joined.leader) == (ErrorCode.NONE, 1, joined.member_id)
    synced = await coordinated.sync("g", joined)
    assert (synced.error, synced.assignment) == (ErrorCode.NONE, b"all")
    (record,) = coordinated.records("g")
    assert record.key == group_key("g")
    assert record.value is not None
    assert read_group(record.value).members[0].assignment == b"all"
    assert coordinated.groups.rebalances == 1


async def test_a_coordinator_that_takes_over_goes_on_with_generation_members_and_offsets(
    coordinated: Coordinated,
) -> None:
    joined = await coordinated.stable("g")
    assert await coordinated.commit("g", (KEY, OFFSET), member=joined) is ErrorCode.NONE
    await coordinated.restart()
    assert coordinated.groups.heartbeat("g", joined.member_id, None, 1) is ErrorCode.NONE
    group, _ = coordinated.groups.committed("g")
    assert group is not None
    assert group.offsets.committed == {KEY: OFFSET}
    assert isinstance(group, Group)
    assert group.state is GroupState.STABLE
    assert group.subscribed_topics == frozenset("t")
    assert (await coordinated.sync("g", joined)).assignment == b"all"
    group.check()


async def test_members_that_were_read_expire_too(coordinated: Coordinated) -> None:
    joined = await coordinated.stable("g")
    await coordinated.restart()
    coordinated.now += 10_001
    coordinated.groups._timers.run_due()
    assert coordinated.groups.heartbeat("g", joined.member_id, None, 1) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_requests_to_those_who_cannot_answer_are_refused(tmp_path: Path) -> None:
    coordinated = Coordinated(tmp_path)
    groups = coordinated.groups
    assert groups.heartbeat("g", "m", None, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    groups.start()
    assert groups.heartbeat("g", "m", None, 1) is ErrorCode.NOT_COORDINATOR
    assert (await coordinated.join("g")).error is ErrorCode.NOT_COORDINATOR
    assert (await coordinated.join("")).error is ErrorCode.INVALID_GROUP_ID
    assert groups.leave("g", [Leaving("m", None)]) == (ErrorCode.NOT_COORDINATOR, [])
    assert await coordinated.commit("g", (KEY, OFFSET)) is ErrorCode.NOT_COORDINATOR
    assert (await groups.delete_groups(["g"])) == {"g": ErrorCode.NOT_COORDINATOR}
    assert (await groups.delete_offsets("g", [KEY]))[0] is ErrorCode.NOT_COORDINATOR
    await coordinated.lead()
    assert (await coordinated.join("g", session_timeout_ms=5999)).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert (await coordinated.join("g", "unknown")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat("g", "m", None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.leave("g", [Leaving("m", None)]) == (ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID])
    await coordinated.close()


async def test_while_a_partition_is_read_clients_are_told_to_wait(coordinated: Coordinated) -> None:
    joined = await coordinated.stable("g")
    owned = coordinated.groups._owned.by_number[coordinated.groups.partition_for("g")]
    owned.is_loading = True
    del coordinated.groups._groups["g"]
    assert (await coordinated.join("g")).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await coordinated.sync("g", joined)).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinated.groups.heartbeat("g", joined.member_id, None, 1) is ErrorCode.NONE
    assert await coordinated.commit("g", (KEY, OFFSET)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert coordinated.groups.groups()[1] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_whoever_waits_is_told_when_another_broker_takes_over(coordinated: Coordinated) -> None:
    await coordinated.stable("g")
    joining = asyncio.create_task(coordinated.join("g"))
    await asyncio.sleep(0)
    await coordinated.lead(replicas=(1, 2), leader=2)
    assert (await joining).error is ErrorCode.NOT_COORDINATOR
    assert coordinated.groups.groups() == ([], ErrorCode.NONE)


async def test_commits_of_one_turn_of_the_loop_are_one_batch(coordinated: Coordinated) -> None:
    outcomes = await asyncio.gather(*(coordinated.commit("g", (("t", number), OFFSET)) for number in range(50)))
    assert set(outcomes) == {ErrorCode.NONE}
    partition_log = coordinated.played.logs.get(OFFSETS_TOPIC, coordinated.groups.partition_for("g"))
    assert partition_log is not None
    data = partition_log.read(0, 1 << 20).read()
    assert int.from_bytes(data[57:61], "big") == 50
    assert committed(coordinated, "g") == {("t", number): 42 for number in range(50)}


async def test_a_commit_counts_when_it_is_replicated_and_fails_with_the_leadership(coordinated: Coordinated) -> None:
    await coordinated.lead(replicas=(1, 2))
    commit = asyncio.create_task(coordinated.commit("g", (KEY, OFFSET)))
    await asyncio.sleep(0.02)
    assert not commit.done()
    group, _ = coordinated.groups.committed("g")
    assert group is not None
    assert group.offsets.is_unstable(KEY)
    assert not group.offsets.committed
    await coordinated.lead(replicas=(1, 2), leader=2)
    assert await commit is ErrorCode.NOT_COORDINATOR


async def test_a_commit_for_a_generation_that_does_not_exist_is_refused(coordinated: Coordinated) -> None:
    outcome = coordinated.groups.commit("g", "m", None, 5, [(KEY, OFFSET)])
    assert outcome is ErrorCode.ILLEGAL_GENERATION


async def test_a_group_record_that_is_too_large_is_an_error_for_the_members(coordinated: Coordinated) -> None:
    joined = await coordinated.join("g", protocols=(("range", bytes(2 << 20)),))
    synced = await coordinated.sync("g", joined)
    assert synced.error is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_an_empty_group_is_deleted_with_its_offsets(coordinated: Coordinated) -> None:
    joined = await coordinated.stable("g")
    await coordinated.commit("g", (KEY, OFFSET), member=joined)
    assert await coordinated.groups.delete_groups(["g", "none"]) == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert coordinated.groups.leave("g", [Leaving(joined.member_id, None)]) == (ErrorCode.NONE, [ErrorCode.NONE])
    assert await coordinated.groups.delete_groups(["g"]) == {"g": ErrorCode.NONE}
    tombstones = [record.key for record in coordinated.records("g") if record.value is None]
    assert [read_key(key or b"") for key in tombstones] == [("g", "t", 0), "g"]
    await coordinated.restart()
    assert coordinated.groups.groups() == ([], ErrorCode.NONE)


async def lead_alone(coordinated: Coordinated) -> None:
    """Of two replicas only this one is in sync."""
    await coordinated.lead(replicas=(1, 2), isr=(1,))


def need_replicas(coordinated: Coordinated, number: int) -> None:
    """From now on the log takes records only when so many replicas are in sync."""
    config = replace(coordinated.played.log_config, min_insync_replicas=number)
    coordinated.played.replicas.apply_topic_config(OFFSETS_TOPIC, config)


async def test_offsets_whose_removal_was_not_written_are_removed_when_it_is_asked_for_again(
    coordinated: Coordinated,
) -> None:
    await lead_alone(coordinated)
    await coordinated.commit("g", (KEY, OFFSET), (("u", 1), OFFSET))
    need_replicas(coordinated, 2)
    for _ in range(2):
        _, errors = await coordinated.groups.delete_offsets("g", [KEY])
        assert errors == {KEY: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    need_replicas(coordinated, 1)
    assert await coordinated.groups.delete_offsets("g", [KEY]) == (ErrorCode.NONE, {KEY: ErrorCode.NONE})
    await coordinated.restart()
    assert committed(coordinated, "g") == {("u", 1): 42}


async def test_a_removal_that_was_not_written_is_written_by_the_next_look_at_what_expires(
    coordinated: Coordinated,
) -> None:
    await lead_alone(coordinated)
    await coordinated.commit("g", (KEY, OFFSET), (("u", 1), CommittedOffset(1, commit_timestamp=coordinated.now)))
    need_replicas(coordinated, 2)
    await coordinated.groups.delete_offsets("g", [KEY])
    need_replicas(coordinated, 1)
    await coordinated.groups.expire_offsets()
    await until(lambda: [record.value is None for record in coordinated.records("g")] == [False, False, True])
    await coordinated.restart()
    assert committed(coordinated, "g") == {("u", 1): 1}


@pytest.mark.parametrize("has_had_members", [False, True])
async def test_a_group_whose_removal_was_not_written_is_there_to_be_removed_again(
    coordinated: Coordinated, has_had_members: bool
) -> None:
    await lead_alone(coordinated)
    if has_had_members:
        joined = await coordinated.stable("g")
        await coordinated.commit("g", (KEY, OFFSET), member=joined)
        coordinated.groups.leave("g", [Leaving(joined.member_id, None)])
        await until(lambda: len(coordinated.records("g")) == 3)
    else:
        await coordinated.commit("g", (KEY, OFFSET))
    group = coordinated.groups.describe("g")[0]
    need_replicas(coordinated, 2)
    for _ in range(2):
        assert await coordinated.groups.delete_groups(["g"]) == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert coordinated.groups.describe("g")[0] is group
    assert group is not None
    before = group.is_dead
    need_replicas(coordinated, 1)
    assert await coordinated.groups.delete_groups(["g"]) == {"g": ErrorCode.NONE}
    assert (before, group.is_dead) == (False, True)
    await coordinated.restart()
    assert coordinated.groups.groups() == ([], ErrorCode.NONE)


async def test_a_group_that_began_while_the_removal_of_the_one_before_failed_owes_that(
    coordinated: Coordinated,
) -> None:
    await lead_alone(coordinated)
    await coordinated.commit("g", (KEY, OFFSET), (("u", 1), OFFSET))
    need_replicas(coordinated, 2)
    deleting = asyncio.ensure_future(coordinated.groups.delete_groups(["g"]))
    await asyncio.sleep(0)  # the records are on their way
    coordinated.groups._create("g")
    former = (await deleting)["g"]
    need_replicas(coordinated, 1)
    assert await coordinated.commit("g", (KEY, OFFSET)) is ErrorCode.NONE
    await coordinated.groups.expire_offsets()
    await until(lambda: ("u", 1) not in coordinated.groups._groups["g"].offsets.all_keys())
    await coordinated.restart()
    assert former is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(coordinated, "g") == {KEY: 42}


async def test_offsets_of_topics_that_are_read_are_not_deleted(coordinated: Coordinated) -> None:
    joined = await coordinated.stable("g")
    await coordinated.commit("g", (KEY, OFFSET), (("u", 1), OFFSET), member=joined)
    error, errors = await coordinated.groups.delete_offsets("g", [KEY, ("u", 1)])
    assert error is ErrorCode.NONE
    assert errors == {KEY: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 1): ErrorCode.NONE}
    assert committed(coordinated, "g") == {KEY: 42}
    assert (await coordinated.groups.delete_offsets("none", [KEY]))[0] is ErrorCode.GROUP_ID_NOT_FOUND
    await coordinated.groups.delete_offsets("g", [("u", 1)])
    assert coordinated.groups.counts.deleted_offsets == 1, "it was gone already"


async def test_offsets_of_groups_of_another_type_are_deleted_only_without_members(coordinated: Coordinated) -> None:
    await coordinated.join("g", protocol_type="connect")
    assert (await coordinated.groups.delete_offsets("g", [KEY]))[0] is ErrorCode.NON_EMPTY_GROUP


async def test_offsets_of_a_deleted_topic_are_forgotten(coordinated: Coordinated) -> None:
    await coordinated.commit("g", (KEY, OFFSET), (("u", 1), OFFSET))
    coordinated.played.tell("t", b"t" * 16, range(3), leader=-2)
    await asyncio.sleep(0)
    assert committed(coordinated, "g") == {("u", 1): 42}
    await coordinated.restart()
    assert committed(coordinated, "g") == {("u", 1): 42}


async def test_a_commit_that_is_under_way_while_its_topic_is_deleted_is_forgotten(coordinated: Coordinated) -> None:
    await coordinated.lead(replicas=(1, 2))  # broker 2 has not fetched yet
    groups, replicas = coordinated.groups, coordinated.played.replicas
    waiting: Any = groups.commit("g", "", None, -1, [(KEY, OFFSET)])
    await asyncio.sleep(0)
    coordinated.played.tell("t", b"t" * 16, range(3), leader=-2)
    hosted = replicas.hosted[OFFSETS_TOPIC, groups.partition_for("g")]
    await until(lambda: hosted.log.log_end_offset == 2)
    fetched = hosted.state.follower_fetched(2, 2, 0, coordinated.now, (1, 2), 2)
    replicas.carry_out(hosted, fetched)
    assert await asyncio.wait_for(waiting, 30) is ErrorCode.NONE
    assert [record.value is None for record in coordinated.records("g")] == [False, True]
    assert committed(coordinated, "g") == {}
    assert not groups._groups["g"].offsets.is_waiting


async def test_a_machine_that_slept_does_not_let_offsets_expire_early_after_a_restart(coordinated: Coordinated) -> None:
    joined = await coordinated.stable("g")
    await coordinated.commit("g", (KEY, OFFSET), member=joined)
    coordinated.ahead_ms = 70_000  # more than the retention
    coordinated.groups.leave("g", [Leaving(joined.member_id, None)])
    coordinated.now, coordinated.ahead_ms = coordinated.now + coordinated.ahead_ms, 0
    await coordinated.restart()
    await coordinated.groups.expire_offsets()
    assert [group.group_id for group in coordinated.groups.groups()[0]] == ["g"]


async def test_a_clock_set_back_does_not_let_offsets_expire(coordinated: Coordinated) -> None:
    coordinated.ahead_ms = -70_000
    now = coordinated.now + coordinated.ahead_ms
    await coordinated.commit("g", (KEY, CommittedOffset(1, commit_timestamp=now)))
    await coordinated.groups.expire_offsets()
    assert [group.group_id for group in coordinated.groups.groups()[0]] == ["g"]


async def test_offsets_expire_and_the_group_with_them(coordinated: Coordinated) -> None:
    joined = await coordinated.stable("g")
    await coordinated.commit("g", (KEY, OFFSET), member=joined)
    await coordinated.commit("simple", (KEY, CommittedOffset(1, commit_timestamp=coordinated.now + 30_000)))
    coordinated.groups.leave("g", [Leaving(joined.member_id, None)])
    coordinated.now += 59_999
    await coordinated.groups.expire_offsets()
    assert len(coordinated.groups.groups()[0]) == 2
    coordinated.now += 1
    await coordinated.groups.expire_offsets()
    assert [group.group_id for group in coordinated.groups.groups()[0]] == ["simple"]
    coordinated.now += 30_000
    await coordinated.groups.expire_offsets()
    assert coordinated.groups.groups() == ([], ErrorCode.NONE)
    assert coordinated.groups.counts.expired_offsets == 2
    await coordinated.restart()
    assert coordinated.groups.groups() == ([], ErrorCode.NONE)


async def test_a_member_waits_for_the_timer_of_a_rebalance(tmp_path: Path) -> None:
    coordinated = Coordinated(tmp_path, group_initial_rebalance_delay_ms=20)
    coordinated.groups = coordinated.make_coordinator()
    coordinated.groups._clock = coordinated.groups._timers._clock = steady_ms
    coordinated.groups.start()
    await coordinated.lead()
    answers = await asyncio.gather(coordinated.join("g"), coordinated.join("g"))
    assert [answer.generation_id for answer in answers] == [1, 1]
    assert sorted(len(answer.members) for answer in answers) == [0, 2]
    await coordinated.close()


async def test_a_lost_disk_ends_the_coordination_of_its_groups(coordinated: Coordinated) -> None:
    await coordinated.stable("g")
    (directory,) = coordinated.played.logs.live_dirs
    coordinated.played.logs.mark_offline(directory, OSError("gone"))
    coordinated.played.replicas._log_dir_failed(directory)
    assert coordinated.groups.status("g") is ErrorCode.NOT_COORDINATOR


async def test_a_partition_whose_replica_is_stopped_is_given_up(coordinated: Coordinated) -> None:
    partition = coordinated.groups.partition_for("g")
    await coordinated.stable("g")
    coordinated.groups.leadership_changed([], [(OFFSETS_TOPIC, partition), ("t", 0)])
    coordinated.groups.leadership_changed([], [(OFFSETS_TOPIC, partition)])
    assert coordinated.groups.status("g") is ErrorCode.NOT_COORDINATOR
    assert len(coordinated.groups._owned.by_number) == PARTITIONS - 1


def test_member_ids_name_the_client_or_the_instance() -> None:
    assert new_member_id("rdkafka", None).startswith("rdkafka-")
    assert new_member_id("rdkafka", "one").startswith("one-")
    assert len(new_member_id("", None)) == 37


async def test_more_offsets_than_fit_a_batch_are_refused_before_records_are_made_of_them(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    await coordinated.lead()
    limit = coordinated.groups._replicas.max_batch_bytes("__consumer_offsets", coordinated.groups.partition_for("g"))
    made: list[str] = []

    def noted(*arguments: Any) -> bytes:
        made.append(arguments[0])
        return commit_key(*arguments)

    builder = BatchBuilder()
    builder.append(commit_key("g", "", 0), commit_value(OFFSET._replace(metadata="")), (), 0)
    assert len(builder.build()) - HEADER_SIZE == SMALLEST_COMMIT_BYTES + len("g")
    monkeypatch.setattr(group_coordinator, "commit_key", noted)
    offsets = [(("t", number), OFFSET) for number in range(limit // SMALLEST_COMMIT_BYTES + 1)]
    assert await coordinated.commit("g", *offsets) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert not made
    assert await coordinated.commit("g", *offsets[: limit // 100]) is ErrorCode.NONE
    assert len(made) == limit // 100

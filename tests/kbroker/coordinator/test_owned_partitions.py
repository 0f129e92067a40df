from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.coordinator.offsets_records import commit_key, commit_value
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.segment.log import AppendOrigin, Log
from tests.controller.conftest import until
from tests.kbroker.coordinator.conftest import PARTITIONS, Coordinated


async def test_empty_partitions_are_ready_at_once_and_a_new_epoch_changes_nothing(coordinated: Coordinated) -> None:
    owned = coordinated.groups._owned.by_number
    assert sorted(owned) == list(range(PARTITIONS))
    before = dict(owned)
    await coordinated.lead()
    assert dict(owned) == before
    assert {each.leader_epoch for each in owned.values()} == {1}


async def test_a_partition_lost_while_it_is_read_is_forgotten(coordinated: Coordinated) -> None:
    await coordinated.commit("g", (("t", 0), CommittedOffset(1)))
    partition = coordinated.groups.partition_for("g")
    hosted = coordinated.played.replicas.hosted[OFFSETS_TOPIC, partition]
    owned = coordinated.groups._owned
    coordinated.groups._owned.resign(partition)
    owned.take(partition, 5, hosted.log)
    assert owned.is_loading
    owned.resign(partition)
    owned.resign(partition)
    await owned.finish()
    assert partition not in owned.by_number
    assert coordinated.groups.status("g") is ErrorCode.NOT_COORDINATOR


async def test_a_partition_that_cannot_be_read_is_not_owned(
    coordinated: Coordinated, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        log_start_offset, log_end_offset, name = 0, 1, "__consumer_offsets-0"

        def read(self, offset: int, size: int) -> Any:
            raise OSError("the disk is gone")

    failing: Any = Failing()
    assert not isinstance(failing, Log)
    owned = coordinated.groups._owned
    owned.resign(0)
    owned.take(0, 5, failing)
    await owned.finish()
    assert 0 not in owned.by_number
    assert "cannot be read" in caplog.text


async def test_a_partition_that_could_not_be_read_is_read_again_as_long_as_it_is_led(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch
) -> None:
    await coordinated.commit("g", (("t", 0), CommittedOffset(1)))
    monkeypatch.setattr("kbroker.coordinator.owned_partitions.FIRST_AGAIN_S", 0.01)
    owned, partition = coordinated.groups._owned, coordinated.groups.partition_for("g")
    read, failures = owned._read, 2

    def read_at_last(*arguments: Any) -> str:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise RuntimeError("can't start new thread")
        return read(*arguments)

    monkeypatch.setattr(owned, "_read", read_at_last)
    hosted = coordinated.played.replicas.hosted[OFFSETS_TOPIC, partition]
    owned.resign(partition)
    owned.take(partition, 5, hosted.log)
    assert coordinated.groups.status("g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await until(lambda: coordinated.groups.status("g") is ErrorCode.NONE)
    assert failures == -1


async def test_partitions_are_read_one_after_the_other(coordinated: Coordinated) -> None:
    for number in range(20):
        await coordinated.commit(f"g{number}", (("t", 0), CommittedOffset(number)))
    await coordinated.restart()
    groups, error = coordinated.groups.groups()
    assert error is ErrorCode.NONE
    assert {group.group_id for group in groups} == {f"g{number}" for number in range(20)}
    await asyncio.sleep(0)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("during_load", [True, False])
async def test_a_marker_decides_the_offsets_of_its_transaction(
    coordinated: Coordinated, is_commit: bool, during_load: bool
) -> None:
    await coordinated.commit("g", (("t", 0), CommittedOffset(1)))
    partition = coordinated.groups.partition_for("g")
    partition_log = coordinated.played.replicas.hosted[OFFSETS_TOPIC, partition].log
    builder = BatchBuilder()
    builder.append(commit_key("g", "t", 0), commit_value(CommittedOffset(9, -1, "", 5)), (), 1)
    partition_log.append_as_leader(builder.build(7, 0, 0, transactional=True), 0, 1, AppendOrigin.COORDINATOR)
    groups = coordinated.groups
    groups._owned.resign(partition)
    groups._owned.take(partition, 5, partition_log)
    if during_load:
        assert groups._owned.by_number[partition].is_loading
        groups.transaction_ended(partition, 7, is_commit)
    await groups._owned.finish()
    if not during_load:
        assert groups._owned.by_number[partition].groups["g"].offsets.is_unstable(("t", 0))
        groups.transaction_ended(partition, 7, is_commit)
    offsets = groups._owned.by_number[partition].groups["g"].offsets
    assert not offsets.is_unstable(("t", 0))
    assert offsets.committed["t", 0].offset == (9 if is_commit else 1)
    groups.transaction_ended(99, 7, is_commit)

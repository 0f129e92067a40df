"""OffsetCommit, OffsetFetch, OffsetDelete in every version on a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.handlers.committed_offsets import _asks_for_much
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from kbroker.protocol.messages.topics import CreateTopicsRequest
from tests.kbroker.asking import Ask
from tests.kbroker.handlers.test_groups import group, join, sync

__all__ = ["group"]

Partition = OffsetCommitRequest.OffsetCommitRequestPartition


@pytest.fixture
async def topic(ask: Ask, topic_name: str) -> str:
    made = CreateTopicsRequest.CreatableTopic(
        name=topic_name, num_partitions=3, replication_factor=1, assignments=[], configs=[]
    )
    await ask(CreateTopicsRequest(topics=[made], timeout_ms=10_000), 5)
    return topic_name


async def commit(
    ask: Ask, group: str, topic: str, *partitions: Any, version: int = 9, **values: Any
) -> dict[int, ErrorCode]:
    request = OffsetCommitRequest(
        group_id=group,
        **{"generation_id_or_member_epoch": -1, "member_id": "", **values},
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=list(partitions))],
    )
    (answered,) = (await ask(request, version)).topics
    return {each.partition_index: each.error_code for each in answered.partitions}


def offset(partition: int, value: int = 42, metadata: str | None = "note", epoch: int = -1) -> Any:
    return Partition(
        partition_index=partition, committed_offset=value, committed_metadata=metadata, committed_leader_epoch=epoch
    )


async def fetch(ask: Ask, group: str, topic: str | None, version: int = 9, require_stable: bool = False) -> Any:
    """Return (error, {partition: (offset, epoch, metadata, error)})."""
    asked = OffsetFetchRequest.OffsetFetchRequestTopics if version >= 8 else OffsetFetchRequest.OffsetFetchRequestTopic
    topics: Any = None if topic is None else [asked(name=topic, partition_indexes=[0, 1])]
    if version >= 8:
        wanted = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)
        answer = await ask(OffsetFetchRequest(groups=[wanted], require_stable=require_stable), version)
        (found,) = answer.groups
    else:
        request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)
        found = await ask(request, version)
    partitions = {
        each.partition_index: (each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code)
        for topic in found.topics
        for each in topic.partitions
    }
    return found.error_code, partitions


NOTHING = (-1, -1, "", ErrorCode.NONE)


@pytest.mark.parametrize("version", range(2, 10))
async def test_every_version_of_commit_stores_the_offset(ask: Ask, group: str, topic: str, version: int) -> None:
    epoch = 5 if version >= 6 else -1
    stored = await commit(ask, group, topic, offset(0, epoch=epoch), offset(9), version=version)
    assert stored == {0: ErrorCode.NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await fetch(ask, group, topic) == (0, {0: (42, epoch, "note", ErrorCode.NONE), 1: NOTHING})


@pytest.mark.parametrize("version", range(1, 10))
async def test_every_version_of_fetch_returns_it(ask: Ask, group: str, topic: str, version: int) -> None:
    await commit(ask, group, topic, offset(1, metadata=None, epoch=3))
    error, found = await fetch(ask, group, topic, version, require_stable=version >= 7)
    assert error is ErrorCode.NONE
    assert found == {0: NOTHING, 1: (42, 3 if version >= 5 else -1, "", ErrorCode.NONE)}
    if version >= 2:
        assert (await fetch(ask, group, None, version))[1] == {1: found[1]}
    assert await fetch(ask, f"{group}-unknown", topic, version) == (ErrorCode.NONE, {0: NOTHING, 1: NOTHING})


@pytest.mark.parametrize("version", [7, 8])
def test_who_asks_for_all_offsets_or_for_many_stands_in_line(version: int) -> None:
    for wanted, expected in ((None, True), ([], False), ([100, 100], False), ([100, 101], True)):
        kind = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = None if wanted is None else [kind(name="t", partition_indexes=list(range(each))) for each in wanted]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics)  # type: ignore[arg-type]
        old = OffsetFetchRequest(group_id="g", topics=topics)
        assert _asks_for_much(old if version < 8 else OffsetFetchRequest(groups=[group])) is expected


async def test_several_groups_are_asked_at_once(ask: Ask, group: str, topic: str) -> None:
    for number in range(3):
        await commit(ask, f"{group}-{number}", topic, offset(0, number))
    wanted = [
        OffsetFetchRequest.OffsetFetchRequestGroup(group_id=f"{group}-{number}", topics=None) for number in range(3)
    ]
    answer = await ask(OffsetFetchRequest(groups=wanted), 8)
    assert [each.topics[0].partitions[0].committed_offset for each in answer.groups] == [0, 1, 2]


async def test_what_is_named_several_times_is_told_once_where_it_is_named_first(
    ask: Ask, group: str, topic: str
) -> None:
    await commit(ask, group, topic, offset(0), offset(1), offset(2))
    asked, wanted = OffsetFetchRequest.OffsetFetchRequestTopics, OffsetFetchRequest.OffsetFetchRequestGroup
    other = f"{group}-other"
    groups = [
        wanted(group_id=group, topics=[asked(name=topic, partition_indexes=[2, 0, 2])]),
        wanted(group_id=other, topics=[]),
        wanted(group_id=group, topics=[asked(name=topic, partition_indexes=[0, 1])] * 2),
    ]
    answered = (await ask(OffsetFetchRequest(groups=groups), 9)).groups
    assert [each.group_id for each in answered] == [group, other]
    (told,) = answered[0].topics
    assert [each.partition_index for each in told.partitions] == [2, 0, 1]
    everything = wanted(group_id=group, topics=None)
    (answered,) = (await ask(OffsetFetchRequest(groups=[groups[0], everything, everything]), 9)).groups
    assert sorted(each.partition_index for topic in answered.topics for each in topic.partitions) == [0, 1, 2]
    old = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[1, 1])
    (told,) = (await ask(OffsetFetchRequest(group_id=group, topics=[old, old]), 7)).topics
    assert [each.partition_index for each in told.partitions] == [1]


async def test_metadata_too_long_concerns_its_partition_only(ask: Ask, group: str, topic: str) -> None:
    stored = await commit(ask, group, topic, offset(0, metadata="x" * 4096), offset(1, metadata="x" * 4097))
    assert stored == {0: ErrorCode.NONE, 1: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    astral = await commit(ask, group, topic, offset(2, metadata="😀" * 2049))
    assert astral == {2: ErrorCode.OFFSET_METADATA_TOO_LARGE}


async def test_a_member_commits_in_its_generation_and_nobody_else(ask: Ask, group: str, topic: str) -> None:
    joined = await join(ask, group)
    known = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
    assert await commit(ask, group, topic, offset(0), **known) == {0: ErrorCode.REBALANCE_IN_PROGRESS}
    await sync(ask, group, joined)
    assert await commit(ask, group, topic, offset(0), **known) == {0: ErrorCode.NONE}
    assert await commit(ask, group, topic, offset(0)) == {0: ErrorCode.UNKNOWN_MEMBER_ID}
    later = {**known, "generation_id_or_member_epoch": 2}
    assert await commit(ask, group, topic, offset(0), **later) == {0: ErrorCode.ILLEGAL_GENERATION}
    unknown = await commit(ask, group, topic, offset(0, metadata="x" * 5000), offset(7), **later)
    assert unknown == {0: ErrorCode.ILLEGAL_GENERATION, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_an_old_clients_own_retention_is_kept_with_the_offset(ask: Ask, group: str, topic: str) -> None:
    stored = await commit(ask, group, topic, offset(0), version=4, retention_time_ms=60_000)
    assert stored == {0: ErrorCode.NONE}
    assert (await fetch(ask, group, topic))[1][0] == (42, -1, "note", ErrorCode.NONE)


async def test_the_longest_retention_there_is_keeps_an_offset_for_good(ask: Ask, group: str, topic: str) -> None:
    stored = await commit(ask, group, topic, offset(0), version=4, retention_time_ms=(1 << 63) - 1)
    assert stored == {0: ErrorCode.NONE}
    assert await fetch(ask, group, topic, require_stable=True) == (0, {0: (42, -1, "note", ErrorCode.NONE), 1: NOTHING})


async def test_offsets_are_deleted_when_nobody_reads_the_topic(ask: Ask, group: str, topic: str) -> None:
    await commit(ask, group, topic, offset(0), offset(1))
    partitions = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
    asked = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    answer = await ask(OffsetDeleteRequest(group_id=group, topics=asked), 0)
    assert answer.error_code is ErrorCode.NONE
    assert [each.error_code for each in answer.topics[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await fetch(ask, group, None))[1] == {1: (42, -1, "note", ErrorCode.NONE)}
    unknown = await ask(OffsetDeleteRequest(group_id=f"{group}-unknown", topics=asked), 0)
    assert unknown.error_code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_that_nobody_is_in_goes_with_the_last_of_its_offsets(ask: Ask, group: str, topic: str) -> None:
    await commit(ask, group, topic, offset(0), offset(1))
    for index, code in ((0, ErrorCode.NONE), (1, ErrorCode.NONE), (1, ErrorCode.GROUP_ID_NOT_FOUND)):
        partitions = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index)]
        asked = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        answer = await ask(OffsetDeleteRequest(group_id=group, topics=asked), 0)
        assert answer.error_code is code
        assert [each.error_code for told in answer.topics for each in told.partitions] == [ErrorCode.NONE] * (not code)

"""Members that do not keep to the protocol, and records that nobody can read: the others go on."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.group.subscriptions import Subscription, encode_assignment, encode_subscription
from kbroker.client.types import OffsetAndMetadata, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.java_hash import partition_for
from kbroker.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from kbroker.protocol.records.batch import split_batches
from kbroker.protocol.records.builder import BatchBuilder
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.asking import Ask, asking
from tests.kbroker.client.group.members import Diary, member, poll_until

LIMIT_S = 60.0
SILENT_SESSION_MS = 8_000
"""Longer than a machine stands still: only who is silent is removed."""


@pytest.fixture
async def served(make_broker: MakeBroker) -> BrokerProcess:
    properties = {
        "group.min.session.timeout.ms": "500",
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": str(SILENT_SESSION_MS),
    }
    broker = await asyncio.to_thread(lambda: make_broker(properties=properties))
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic("t", 4)
        await admin.create_topic("other", 1)
    async with Consumer(broker.bootstrap, group_id="g") as consumer:
        await consumer.committed([("t", 0)])  # from here on the group has its coordinator
    return broker


@pytest.fixture
async def ask(served: BrokerProcess) -> AsyncIterator[Ask]:
    async with asking(served) as function:
        yield function


class RawMember:
    """Sends what the test wants, and no heartbeat by itself."""

    def __init__(self, ask: Ask, session_timeout_ms: int = 30_000) -> None:
        self.ask = ask
        self.session_timeout_ms = session_timeout_ms
        self.member_id = ""
        self.generation = -1

    async def join(self, metadata: bytes = encode_subscription(Subscription(("t",)))) -> Any:
        """Join; answered when all others have joined too."""
        while True:
            protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
            request = JoinGroupRequest(
                group_id="g",
                session_timeout_ms=self.session_timeout_ms,
                rebalance_timeout_ms=10_000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            answer = await self.ask(request, 7)
            self.member_id = answer.member_id or self.member_id
            if answer.error_code is not ErrorCode.MEMBER_ID_REQUIRED:
                self.generation = answer.generation_id
                return answer

    async def sync(self, shares: dict[str, bytes] | None = None, generation: int | None = None) -> Any:
        assignments = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=blob)
            for name, blob in (shares or {}).items()
        ]
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            assignments=assignments,
        )
        return await self.ask(request, 3)

    async def heartbeat(self, generation: int | None = None) -> ErrorCode:
        number = self.generation if generation is None else generation
        request = HeartbeatRequest(group_id="g", generation_id=number, member_id=self.member_id)
        code: ErrorCode = (await self.ask(request, 3)).error_code
        return code

    async def commit(self, generation: int) -> ErrorCode:
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[ninety_nine()])
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=generation, member_id=self.member_id, topics=[topic]
        )
        code: ErrorCode = (await self.ask(request, 8)).topics[0].partitions[0].error_code
        return code


def ninety_nine() -> OffsetCommitRequest.OffsetCommitRequestPartition:
    return OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=99, committed_metadata=""
    )


async def joined_by(ours: Consumer, raw: RawMember) -> None:
    """Have a raw member join the group that ours leads, and take its share."""
    joining = asyncio.create_task(join_and_sync(raw))
    await poll_until(joining.done, ours)
    await joining
    await poll_until(lambda: len(ours.assignment()) == 2, ours)


async def join_and_sync(raw: RawMember) -> None:
    assert (await raw.join()).error_code is ErrorCode.NONE
    assert (await raw.sync()).error_code is ErrorCode.NONE


async def described(ask: Ask) -> Any:
    return (await ask(DescribeGroupsRequest(groups=["g"]), 5)).groups[0]


@pytest.mark.parametrize("stops", ["when it has its assignment", "before it asks for one"])
async def test_a_member_that_never_heartbeats_is_removed_and_the_others_get_its_share(
    served: BrokerProcess, ask: Ask, stops: str
) -> None:
    raw = RawMember(ask, SILENT_SESSION_MS)
    async with member(served.bootstrap, "g", partition_assignment_strategy="range") as ours:
        await ours.subscribe(["t"])
        await poll_until(lambda: len(ours.assignment()) == 4, ours)
        if stops == "when it has its assignment":
            await joined_by(ours, raw)
        else:
            joining = asyncio.create_task(raw.join())
            await poll_until(joining.done, ours)
        await poll_until(lambda: len(ours.assignment()) == 4, ours)
        assert await raw.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await described(ask)).group_state == "Stable"


async def test_a_member_of_an_old_generation_changes_nothing(served: BrokerProcess, ask: Ask) -> None:
    raw, diary = RawMember(ask), Diary()
    async with member(served.bootstrap, "g", partition_assignment_strategy="range", enable_auto_commit=False) as ours:
        await ours.subscribe(["t"], listener=diary)
        await poll_until(lambda: len(ours.assignment()) == 4, ours)
        await joined_by(ours, raw)
        old, heard = raw.generation - 1, len(diary.entries)
        for generation in (old, 0, raw.generation + 1):
            assert (await raw.sync({}, generation)).error_code is ErrorCode.ILLEGAL_GENERATION
            assert await raw.heartbeat(generation) is ErrorCode.ILLEGAL_GENERATION
            assert await raw.commit(generation) is ErrorCode.ILLEGAL_GENERATION
        stranger = RawMember(ask)
        stranger.member_id = "nobody"
        assert (await stranger.sync({}, raw.generation)).error_code is ErrorCode.UNKNOWN_MEMBER_ID
        assert await stranger.commit(raw.generation) is ErrorCode.UNKNOWN_MEMBER_ID
        assert await raw.heartbeat() is ErrorCode.NONE
        await ours.poll(0.5)
        assert (ours.group_metadata().generation_id, len(diary.entries)) == (raw.generation, heard)
        assert await ours.committed([("t", 0)]) == {TopicPartition("t", 0): None}


async def test_a_member_of_the_newer_protocol_that_falls_silent_or_behind_harms_nobody(
    served: BrokerProcess, ask: Ask
) -> None:
    member_id = str(uuid.uuid4())

    async def heartbeat(epoch: int, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        return await ask(request, 1)

    async def join_and_wait_for_a_share() -> int:
        joining = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        answer = await heartbeat(0, **joining)
        while answer.assignment is None or not answer.assignment.topic_partitions:
            await asyncio.sleep(0.1)
            answer = await heartbeat(answer.member_epoch)
            assert answer.error_code is ErrorCode.NONE
        return int(answer.member_epoch)

    async with member(served.bootstrap, "g", group_protocol="consumer", enable_auto_commit=False) as ours:
        await ours.subscribe(["t"])
        await poll_until(lambda: len(ours.assignment()) == 4, ours)
        joining = asyncio.create_task(join_and_wait_for_a_share())
        await poll_until(joining.done, ours)
        epoch = await joining
        assert len(ours.assignment()) == 2
        assert (await heartbeat(epoch + 5)).error_code is ErrorCode.FENCED_MEMBER_EPOCH
        stale = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=epoch - 1,
            member_id=member_id,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[ninety_nine()])],
        )
        assert (await ask(stale, 9)).topics[0].partitions[0].error_code is ErrorCode.STALE_MEMBER_EPOCH
        await poll_until(lambda: len(ours.assignment()) == 4, ours)
        assert (await heartbeat(epoch)).error_code is ErrorCode.UNKNOWN_MEMBER_ID
        await ours.commit({("t", 0): 7})
        assert (await ours.committed([("t", 0)]))[TopicPartition("t", 0)] == OffsetAndMetadata(7)


def share(*partitions: tuple[str, int]) -> bytes:
    return encode_assignment([TopicPartition(*key) for key in partitions])


async def test_a_leader_that_assigns_to_strangers_and_forgets_a_member_harms_nobody(
    served: BrokerProcess, ask: Ask
) -> None:
    leader = RawMember(ask)
    await leader.join()
    await leader.sync({leader.member_id: share(("t", 0)), "a stranger": share(("t", 1))})
    async with member(served.bootstrap, "g", partition_assignment_strategy="range") as ours:
        await ours.subscribe(["t"])

        async def lead(shares: Sequence[tuple[str, int]], forgets: bool) -> None:
            joined = await leader.join()
            assert joined.leader == leader.member_id
            (other,) = {one.member_id for one in joined.members} - {leader.member_id}
            given = {leader.member_id: share(("t", 0)), "a stranger": share(("t", 1))}
            answer = await leader.sync(given if forgets else {**given, other: share(*shares)})
            assert answer.assignment == share(("t", 0))

        await poll_until(asyncio.create_task(until_rebalancing(leader)).done, ours)
        leading = asyncio.create_task(lead([], forgets=True))
        await poll_until(leading.done, ours)
        await leading
        assert await ours.poll(0.5) == []
        assert ours.assignment() == []
        assert {one.member_id for one in (await described(ask)).members} >= {leader.member_id}
        assert "a stranger" not in {one.member_id for one in (await described(ask)).members}

        # A topic that ours did not ask for: it takes nothing of it and joins again, until the share makes sense.
        for shares in ([("other", 0)], [("t", 1), ("t", 2)]):
            leading = asyncio.create_task(lead(shares, forgets=False))
            await poll_until(leading.done, ours)
            await leading
            assert ("other", 0) not in ours.assignment()
        await poll_until(lambda: ours.assignment() == [("t", 1), ("t", 2)], ours)


async def until_rebalancing(raw: RawMember) -> None:
    while await raw.heartbeat() is not ErrorCode.REBALANCE_IN_PROGRESS:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def test_metadata_that_fits_no_record_fails_its_group_and_no_other(served: BrokerProcess, ask: Ask) -> None:
    raw = RawMember(ask)
    joined = await raw.join(encode_subscription(Subscription(("t",), user_data=bytes(2 << 20))))
    assert joined.error_code is ErrorCode.NONE
    answer = await raw.sync({raw.member_id: share(("t", 0))})
    assert answer.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    async with member(served.bootstrap, "another") as ours:
        await ours.subscribe(["t"])
        await poll_until(lambda: len(ours.assignment()) == 4, ours)
        await ours.commit({("t", 0): 1})
    joined = await raw.join()
    assert (await raw.sync({raw.member_id: share(("t", 0))})).assignment == share(("t", 0))
    assert "Traceback" not in served.log_tail(1000)


async def test_records_of_offsets_that_cannot_be_read_are_named_and_the_others_counted(served: BrokerProcess) -> None:
    group = "g"
    async with Consumer(served.bootstrap, group_id=group) as consumer:
        for number in range(1, 4):
            await consumer.commit({("t", 0): number, ("t", number): number})
    async with Admin(served.bootstrap) as admin:
        count = len((await admin.describe_topics(["__consumer_offsets"]))["__consumer_offsets"].partitions)
    await asyncio.to_thread(served.stop)
    (segment,) = (served.log_dir / f"__consumer_offsets-{partition_for(group, count)}").glob("*.log")
    data = bytearray(segment.read_bytes())
    positions = split_batches(data)
    position, size = positions[1]
    data[position + size - 3] ^= 0x20
    end = int.from_bytes(data[positions[-1][0] : positions[-1][0] + 8], "big") + 2
    builder = BatchBuilder()
    builder.append(b"\0\1\0\7g", b"nonsense")
    builder.append(b"\0\2\0\1g", b"\0\3\xff\xff")
    data += builder.build(base_offset=end)
    segment.write_bytes(data)
    await asyncio.to_thread(lambda: served.start().wait_until_ready(LIMIT_S))
    async with Consumer(served.bootstrap, group_id=group) as consumer:
        found = await consumer.committed([("t", 0), ("t", 1), ("t", 2), ("t", 3)])
        assert list(found.values()) == [OffsetAndMetadata(3), OffsetAndMetadata(1), None, OffsetAndMetadata(3)]
        await consumer.commit({("t", 2): 7})
        assert (await consumer.committed([("t", 2)]))[TopicPartition("t", 2)] == OffsetAndMetadata(7)
    log = served.log_tail(1000)
    assert "does not match its checksum" in log
    assert log.count("is left out") >= 2
    assert "Traceback" not in log

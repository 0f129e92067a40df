"""Members of a group as bare protocol clients, each on a connection of its own: little is done between two requests.

Classic members join with the consumer protocol's subscriptions and get one partition each from whichever of them leads.
Members of the newer protocol (KIP-848) only send heartbeats; the coordinator assigns.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

from kbroker.client.connection import Connection
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
)
from kbroker.protocol.versioned import encode_versioned

HEARTBEAT_S = 0.1
"""Short, so that waiting for heartbeats is a small part of what is measured."""
SESSION_MS = 30_000
REBALANCE_MS = 60_000
LIMIT_S = 60.0
NEWER_PROTOCOL_KEY = 68


def check(code: ErrorCode, what: str) -> None:
    """Raise for an answer that a member without faults does not get."""
    if code is not ErrorCode.NONE:
        raise RuntimeError(f"{what} was answered {code.name}")


class Group:
    """What the members of one group share."""

    def __init__(self, group_id: str, topic: str, size: int) -> None:
        self.group_id = group_id
        self.topic = topic
        self.size = size
        self.connections: list[Connection] = []

    async def connect(self, port: int) -> None:
        """Open a connection for each member."""
        self.connections = [await Connection.open("127.0.0.1", port) for _ in range(self.size)]
        for connection in self.connections:
            await connection.negotiate()

    async def close(self) -> None:
        """End the members; their sessions run out at the broker."""
        for connection in self.connections:
            await connection.close()


class ClassicGroup(Group):
    """Members of the classic protocol."""

    def __init__(self, group_id: str, topic: str, size: int) -> None:
        super().__init__(group_id, topic, size)
        self.subscription = encode_versioned(ConsumerProtocolSubscription(topics=[topic]), 1)
        self.members: list[ClassicMember] = []
        self.synced: Counter[int] = Counter()
        """How many members have their assignment, by generation."""
        self.complete = asyncio.Event()

    def note(self, generation: int) -> None:
        """One more member has its assignment."""
        self.synced[generation] += 1
        if self.synced[generation] == self.size:
            self.complete.set()

    async def join(self) -> float:
        """Have all members join at once; returns the seconds until all are in one generation with an assignment.

        Those that came first hear of the others by their heartbeats.
        """
        self.members = [ClassicMember(self, connection) for connection in self.connections]
        return await _seconds_until(self.complete, [member.stay() for member in self.members])

    async def rebalance(self) -> float:
        """Have the leader, and as soon as the group is told so all others, join again; returns the seconds."""
        leader = next(member for member in self.members if member.is_leader)
        others = [member for member in self.members if member is not leader]
        async with asyncio.timeout(LIMIT_S):
            began = time.monotonic()
            task = asyncio.create_task(leader.join())
            while await others[0].heartbeat() is ErrorCode.NONE:
                pass
            await asyncio.gather(task, *(member.join() for member in others))
            seconds = time.monotonic() - began
        assert len({member.generation for member in self.members}) == 1
        return seconds


class ClassicMember:
    """One of them."""

    def __init__(self, group: ClassicGroup, connection: Connection) -> None:
        self.group = group
        self.connection = connection
        self.member_id = ""
        self.generation = -1
        self.is_leader = False

    async def stay(self) -> None:
        """Join, and join again whenever a heartbeat says so."""
        await self.join()
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if await self.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
                await self.join()

    async def heartbeat(self) -> ErrorCode:
        """Return what a heartbeat is answered."""
        request = HeartbeatRequest(
            group_id=self.group.group_id, generation_id=self.generation, member_id=self.member_id
        )
        code: ErrorCode = (await self.connection.request(request)).error_code
        if code is not ErrorCode.REBALANCE_IN_PROGRESS:
            check(code, "Heartbeat")
        return code

    async def join(self) -> None:
        """Take part in a generation, in the next one when that is over already."""
        while True:
            joined = await self._join_group()
            self.is_leader = joined.leader == joined.member_id
            shares = [] if not self.is_leader else _one_each(self.group.topic, joined)
            request = SyncGroupRequest(
                group_id=self.group.group_id,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                protocol_type=joined.protocol_type,
                protocol_name=joined.protocol_name,
                assignments=shares,
            )
            synced = await self.connection.request(request, timeout=LIMIT_S)
            if synced.error_code is ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            check(synced.error_code, "SyncGroup")
            assert synced.assignment, "a member got no partition"
            self.generation = joined.generation_id
            self.group.note(self.generation)
            return

    async def _join_group(self) -> JoinGroupResponse:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=self.group.subscription)
        while True:
            request = JoinGroupRequest(
                group_id=self.group.group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            answer: JoinGroupResponse = await self.connection.request(request, timeout=LIMIT_S)
            self.member_id = answer.member_id
            if answer.error_code is not ErrorCode.MEMBER_ID_REQUIRED:
                check(answer.error_code, "JoinGroup")
                return answer


def _one_each(topic: str, joined: JoinGroupResponse) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
    """Give each member one partition."""
    partitions = ConsumerProtocolAssignment.TopicPartition
    return [
        SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=member.member_id,
            assignment=encode_versioned(
                ConsumerProtocolAssignment(assigned_partitions=[partitions(topic=topic, partitions=[number])]), 1
            ),
        )
        for number, member in enumerate(joined.members)
    ]


class ConsumerGroup(Group):
    """Members of the newer protocol, as many as the topic has partitions."""

    def __init__(self, group_id: str, topic: str, size: int) -> None:
        super().__init__(group_id, topic, size)
        self.owned: dict[str, frozenset[int]] = {}
        self.complete = asyncio.Event()

    @property
    def is_served(self) -> bool:
        """Whether the broker has the protocol as clients use it."""
        return self.connections[0].versions.get(NEWER_PROTOCOL_KEY, (0, 0))[1] >= 1

    async def join(self) -> float:
        """Have all members join at once; returns the seconds until each has exactly one partition."""
        return await _seconds_until(self.complete, [self._stay(connection) for connection in self.connections])

    async def _stay(self, connection: Connection) -> None:
        """Join, then send heartbeats: at once when partitions were gained or given up, else after a pause."""
        member_id, epoch = str(uuid.uuid4()), 0
        topic_id, owned = b"", frozenset[int]()
        told: frozenset[int] | None = None
        while True:
            request = ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=-1 if epoch else REBALANCE_MS,
                subscribed_topic_names=None if epoch else [self.topic],
                topic_partitions=None if told == owned else _partitions_of(topic_id, owned),
            )
            answer: ConsumerGroupHeartbeatResponse = await connection.request(request, timeout=LIMIT_S)
            check(answer.error_code, "ConsumerGroupHeartbeat")
            told, epoch = owned, answer.member_epoch
            if answer.assignment is not None:
                assigned = answer.assignment.topic_partitions
                topic_id = assigned[0].topic_id if assigned else topic_id
                owned = frozenset(number for each in assigned for number in each.partitions)
            if owned == told:
                await asyncio.sleep(HEARTBEAT_S)
                continue
            self.owned[member_id] = owned
            if len(self.owned) == self.size and all(len(each) == 1 for each in self.owned.values()):
                self.complete.set()


def _partitions_of(topic_id: bytes, owned: frozenset[int]) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    if not owned:
        return []
    return [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=sorted(owned))]


async def _seconds_until(complete: asyncio.Event, stays: Sequence[Coroutine[Any, Any, None]]) -> float:
    """Let members stay until the group is complete; returns the seconds that took."""
    began = time.monotonic()
    tasks = [asyncio.create_task(stay) for stay in stays]
    try:
        async with asyncio.timeout(LIMIT_S):
            await _first_of(complete, tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return time.monotonic() - began


async def _first_of(complete: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for the event; raises what goes wrong in a task before."""
    waiting = asyncio.create_task(complete.wait())
    done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    for task in done:
        task.result()

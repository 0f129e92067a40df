"""A coordinator on a real replica manager and real logs; the test plays the controller and the clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster.topic_names import OFFSETS_TOPIC
from kbroker.coordinator.group_coordinator import GroupCoordinator, new_member_id
from kbroker.coordinator.group_events import JoinAnswer, JoinRequest, SyncAnswer
from kbroker.protocol.records.record import Record, decode_batch
from tests.fixtures.data_path import Played
from tests.kbroker.coordinator.play import subscription

PARTITIONS = 4
TOPIC_ID = bytes(range(1, 17))


class Coordinated:
    """`groups` is the coordinator of all partitions of __consumer_offsets."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.now = 1_000_000
        """Of the coordinator's clock, which nobody sets and which stands still while the machine sleeps."""
        self.ahead_ms = 0
        """How much later the clock on the wall is."""
        self.played = Played(folder, clock=lambda: self.now + self.ahead_ms, steady=lambda: self.now)
        self.config = SimpleNamespace(
            group_initial_rebalance_delay_ms=0,
            group_max_size=100,
            group_history_size=100,
            group_min_session_timeout_ms=6000,
            group_max_session_timeout_ms=1_800_000,
            offsets_topic_num_partitions=PARTITIONS,
            offsets_load_buffer_size=5 << 20,
            offsets_commit_required_acks=-1,
            offsets_commit_timeout_ms=5000,
            offsets_topic_compression_codec=0,
            offsets_retention_minutes=1,
            offsets_retention_check_interval_ms=600_000,
            offset_metadata_max_bytes=20,
            group_consumer_session_timeout_ms=45_000,
            group_consumer_heartbeat_interval_ms=5_000,
            group_consumer_max_size=100,
            group_consumer_migration_policy="bidirectional",
            group_coordinator_rebalance_protocols=("classic", "consumer"),
        )
        for name, value in config.items():
            setattr(self.config, name, value)
        self.leader_epoch = -1
        self.groups = self.make_coordinator()

    def make_coordinator(self) -> GroupCoordinator:
        config: Any = self.config
        groups = GroupCoordinator(config, self.played.replicas, clock=lambda: self.now)
        self.played.replicas.on_leadership_change = groups.leadership_changed
        self.played.replicas.on_partitions_removed = groups.partitions_removed
        return groups

    async def lead(self, replicas: tuple[int, ...] = (1,), leader: int = 1, isr: tuple[int, ...] | None = None) -> None:
        """Become leader (or follower) of all partitions, and wait until they are read."""
        self.leader_epoch += 1
        await self.played.lead(
            range(PARTITIONS),
            OFFSETS_TOPIC,
            TOPIC_ID,
            leader=leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.leader_epoch,
            replicas=replicas,
            isr=isr,
        )
        await asyncio.wait_for(self.groups._owned.finish(), 20)

    async def restart(self) -> None:
        """Another coordinator takes over what the log holds."""
        await self.groups.stop()
        self.groups = self.make_coordinator()
        self.groups.start()
        await self.lead()

    async def close(self) -> None:
        await self.groups.stop()
        await self.played.close()

    def records(self, group_id: str) -> list[Record]:
        """What is in the log of the group's partition."""
        partition_log = self.played.logs.get(OFFSETS_TOPIC, self.groups.partition_for(group_id))
        assert partition_log is not None
        found: list[Record] = []
        offset = 0
        while offset < partition_log.log_end_offset:
            data = partition_log.read(offset, 1 << 20).read()
            batch = decode_batch(data)
            found += batch
            offset = batch[-1].offset + 1
        return found

    # --- short forms ------------------------------------------------------------------------------------------

    async def join(self, group_id: str, member_id: str = "", version: int = 3, **values: Any) -> JoinAnswer:
        request = {
            "group_instance_id": None,
            "client_id": "test",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (("range", subscription("t")),),
            "new_member_id": new_member_id("test", None),
            "requires_member_id": version >= 4,
            **values,
        }
        answer = self.groups.join(group_id, JoinRequest(member_id, **request))
        return answer if isinstance(answer, JoinAnswer) else await asyncio.wait_for(answer, 20)

    async def sync(self, group_id: str, joined: JoinAnswer, **shares: bytes) -> SyncAnswer:
        assignments = {member_id.replace("_", "-"): share for member_id, share in shares.items()}
        assignments.setdefault(joined.member_id, b"all")
        answer = self.groups.sync(
            group_id, joined.member_id, None, joined.generation_id, ("consumer", "range"), assignments
        )
        return answer if isinstance(answer, SyncAnswer) else await asyncio.wait_for(answer, 20)

    async def stable(self, group_id: str) -> JoinAnswer:
        """A group of one member."""
        joined = await self.join(group_id)
        await self.sync(group_id, joined)
        return joined

    async def commit(self, group_id: str, *offsets: Any, member: JoinAnswer | None = None) -> Any:
        member_id, generation = ("", -1) if member is None else (member.member_id, member.generation_id)
        outcome = self.groups.commit(group_id, member_id, None, generation, offsets)
        return await asyncio.wait_for(outcome, 20) if isinstance(outcome, asyncio.Future) else outcome


@pytest.fixture
async def coordinated(tmp_path: Path) -> AsyncIterator[Coordinated]:
    made = Coordinated(tmp_path)
    made.groups.start()
    await made.lead()
    made.played.tell("t", b"t" * 16, range(3))
    yield made
    await made.close()

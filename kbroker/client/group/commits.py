"""A group's committed offsets: stored and asked for at its coordinator, with or without a membership."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, SupportsIndex

from kbroker.client.client_config import NEW_TOPIC_S
from kbroker.client.errors import BrokerError, TimedOut, error_for
from kbroker.client.group.coordinator import MOVED, Coordinator
from kbroker.client.group.events import Identity
from kbroker.client.partition_names import Partition, partition_of, partitions_of
from kbroker.client.types import OffsetAndMetadata, TopicPartition
from kbroker.client.values import mapping
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import by_topic
from kbroker.protocol.messages.groups import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

WORTH_RETRYING = MOVED | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.STALE_MEMBER_EPOCH,
}
WORTH_ASKING_AGAIN = WORTH_RETRYING | {ErrorCode.UNKNOWN_MEMBER_ID}
"""A member that the group has gone on without asks again as what it is by then."""
WHY_REFUSED = {
    ErrorCode.ILLEGAL_GENERATION: "the group has rebalanced and given this partition away",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has gone on without this member; longer than max_poll_interval_ms or "
    "session_timeout_ms away?",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist (any more)",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing: poll, then commit again",
    ErrorCode.FENCED_INSTANCE_ID: "another member has taken over this group_instance_id",
}
FIRST_BATCHED = 8
"""The version of OffsetFetch that takes several groups."""
LAPSE_S = 0.1
"""A request's own limit comes first: it ends the connection, on which the next would wait for nothing."""


class Commits:
    """Commits of one group by one client."""

    def __init__(
        self,
        coordinator: Coordinator,
        instance_id: str | None = None,
        identity: Callable[[], Identity] = Identity,
        refused: Callable[[ErrorCode, Identity], None] = lambda code, identity: None,
        reader: Callable[[], Identity] = Identity,
    ) -> None:
        """`identity()` says as which member to commit; `refused` is told which errors came.

        `reader()` says as which member to ask: nobody, unless the group is of the newer protocol.
        """
        self._coordinator = coordinator
        self._cluster = coordinator.cluster
        self._instance_id = instance_id
        self._identity = identity
        self._refused = refused
        self._reader = reader

    async def commit(self, offsets: Offsets, timeout_ms: int | None = None) -> None:
        """Store offsets, trying again as long as that may help; raises the first partition's error."""
        if not offsets:
            return
        limit = self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms
        problem: Exception = self._silence(limit)
        topics = self._topic_ids(offsets)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit / 1000 + LAPSE_S):
                async for left in self._times_left(limit):
                    try:
                        await self.commit_once(offsets, left)
                        return
                    except OSError as error:
                        problem = error
                    except BrokerError as error:
                        problem = error
                        is_unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        is_new = is_unknown and limit - left < 1000 * NEW_TOPIC_S
                        is_there = topics.items() <= self._topic_ids(offsets).items()
                        if error.code not in WORTH_RETRYING and not (is_new and is_there):
                            raise
        raise problem

    def _topic_ids(self, offsets: Offsets) -> dict[str, bytes]:
        """Return the ids of the topics that are known: what is committed of one that has gone counts for no other."""
        known = self._cluster.metadata.topics
        return {name: known[name].topic_id for name in by_topic(offsets) if name in known}

    def _silence(self, limit_ms: int) -> TimedOut:
        return TimedOut(f"group {self._coordinator.key}: no coordinator has answered within {limit_ms} ms")

    async def _times_left(self, limit_ms: int) -> AsyncIterator[int]:
        """Give each attempt the ms that are left for it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async for _ in self._cluster.attempts(limit_ms):
            yield max(1, limit_ms - round(1000 * (loop.time() - began)))

    async def commit_by_newest_epoch(self, offsets: Offsets, check_owned: Callable[[Offsets], None]) -> None:
        """Store offsets once, but for a member whose heartbeats have not heard of its new epoch yet: again as soon.

        Unless it has lost a partition meanwhile: `check_owned` raises then.
        """
        limit = self._cluster.config.request_timeout_ms
        async for _ in self._cluster.attempts(limit):
            check_owned(offsets)
            try:
                return await self.commit_once(offsets, limit)
            except BrokerError as error:
                if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
                    raise
                problem = error
        raise problem

    async def commit_once(self, offsets: Offsets, timeout_ms: int) -> None:
        """Store offsets in one request; raises its error, or its first partition's."""
        identity = self._identity()
        request = self._request(offsets, identity)
        answer: OffsetCommitResponse = await self._coordinator.ask(request, timeout_ms)
        failed = [
            error_for(
                item.error_code, WHY_REFUSED.get(item.error_code), topic=topic.name, partition=item.partition_index
            )
            for topic in answer.topics
            for item in topic.partitions
            if item.error_code is not ErrorCode.NONE
        ]
        for code in {error.code for error in failed}:
            self._refused(code, identity)
            if code in MOVED:
                self._coordinator.forget()
        if failed:
            raise failed[0]

    def _request(self, offsets: Offsets, identity: Identity) -> OffsetCommitRequest:
        topics = []
        for topic, partitions in by_topic(offsets).items():
            entries = []
            for partition in partitions:
                wanted = offsets[TopicPartition(topic, partition)]
                entries.append(
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=wanted.offset,
                        committed_leader_epoch=wanted.leader_epoch,
                        committed_metadata=wanted.metadata,
                    )
                )
            topics.append(OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=entries))
        return OffsetCommitRequest(
            group_id=self._coordinator.key,
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=self._instance_id if identity.generation >= 0 else None,
            topics=topics,
        )

    async def committed(
        self, partitions: Iterable[Partition] | None, timeout_ms: int | None = None, *, require_stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition, None where there is none (`partitions` None: all).

        `require_stable`: wait while a transaction may still change it, as who begins to read there must.
        """
        wanted = None if partitions is None else partitions_of(partitions)
        if wanted is not None and not wanted:
            return {}
        limit = self._cluster.config.request_timeout_ms if timeout_ms is None else timeout_ms
        problem: Exception = self._silence(limit)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit / 1000 + LAPSE_S):
                async for left in self._times_left(limit):
                    try:
                        found = await self._fetch_once(wanted, left, require_stable)
                        return found if wanted is None else {key: found.get(key) for key in wanted}
                    except OSError as error:
                        problem = error
                    except BrokerError as error:
                        problem = error
                        if error.code in MOVED:
                            self._coordinator.forget()
                        if error.code not in WORTH_ASKING_AGAIN:
                            raise
        raise problem

    async def _fetch_once(
        self, wanted: list[TopicPartition] | None, timeout_ms: int, require_stable: bool
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        await self._coordinator.find(timeout_ms)
        version = await self._coordinator.version_for(OffsetFetchRequest)
        grouped = None if wanted is None else by_topic(wanted)
        reader = self._reader()
        request = self._fetch_request(grouped, version, reader, require_stable)
        answer = await self._coordinator.ask(request, timeout_ms, version=version)
        group: Any = answer if version < FIRST_BATCHED else answer.groups[0]
        if group.error_code is not ErrorCode.NONE:
            self._refused(group.error_code, reader)
            raise error_for(group.error_code, f"offsets of group {self._coordinator.key}")
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for topic in group.topics:
            for item in topic.partitions:
                if item.error_code is not ErrorCode.NONE:
                    raise error_for(item.error_code, topic=topic.name, partition=item.partition_index)
                offset = OffsetAndMetadata(item.committed_offset, item.metadata or "", item.committed_leader_epoch)
                found[TopicPartition(topic.name, item.partition_index)] = offset if offset.offset >= 0 else None
        return found

    def _fetch_request(
        self, grouped: dict[str, list[int]] | None, version: int, reader: Identity, require_stable: bool
    ) -> OffsetFetchRequest:
        group_id = self._coordinator.key
        if version < FIRST_BATCHED:
            one = OffsetFetchRequest.OffsetFetchRequestTopic
            topics = None if grouped is None else [one(name=t, partition_indexes=p) for t, p in grouped.items()]
            return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)
        of = OffsetFetchRequest.OffsetFetchRequestTopics
        named = None if grouped is None else [of(name=t, partition_indexes=p) for t, p in grouped.items()]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group_id, member_id=reader.member_id or None, member_epoch=reader.generation, topics=named
        )
        return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def checked_offsets(given: Mapping[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return what is to be committed as it was given, offsets alone or with metadata."""
    offsets = {}
    for key, value in mapping("partitions to offsets", given).items():
        is_number = isinstance(value, SupportsIndex) and not isinstance(value, bool)
        found = OffsetAndMetadata(value.__index__()) if is_number else value
        if not isinstance(found, OffsetAndMetadata) or type(found.offset) is not int or not 0 <= found.offset < 1 << 63:
            raise TypeError(f"{key}: an offset from 0 on or an OffsetAndMetadata is committed, not {value!r}")
        offsets[partition_of(key)] = found
    return offsets

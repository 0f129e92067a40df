"""Administration: topics, configurations, offsets, log directories, elections, reassignments; groups, access rules
and transactions are in modules of their own.

Each call takes one or many; the answer for many is a dict, or the first error is raised (`kbroker.client.errors`).
Results are the frozen dataclasses of `types.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kbroker.client import admin_requests as requests
from kbroker.client.acl_admin import AclAdmin
from kbroker.client.client_config import NEW_TOPIC_S, AdminConfig
from kbroker.client.cluster import Cluster
from kbroker.client.errors import BrokerError, ConfigurationError, NotConnected, error_for
from kbroker.client.feature_admin import FeatureAdmin
from kbroker.client.group_admin import GroupAdmin
from kbroker.client.leaders import ask_leaders
from kbroker.client.offset_lookup import list_offsets
from kbroker.client.partition_names import Key, Partition, partition_of, partitions_of
from kbroker.client.quota_admin import QuotaAdmin
from kbroker.client.token_admin import TokenAdmin
from kbroker.client.transaction_admin import TransactionAdmin
from kbroker.client.types import (
    LATEST,
    ClusterDescription,
    ConfigEntry,
    CreatedTopic,
    ElectionType,
    LogDirDescription,
    NewTopic,
    OffsetAndTimestamp,
    Reassignment,
    ResourceType,
    Scrub,
    TopicDescription,
    TopicPartition,
)
from kbroker.client.user_admin import UserAdmin
from kbroker.client.values import brokers_of, listed, mapping, texts, whole_number
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import by_topic
from kbroker.protocol.schema import Message

SCRUB_ID_BYTES = 16


class Admin(GroupAdmin, AclAdmin, QuotaAdmin, UserAdmin, TokenAdmin, FeatureAdmin, TransactionAdmin):
    """`async with Admin("127.0.0.1:9092") as admin`; arguments are those of AdminConfig."""

    def __init__(self, bootstrap: str, **arguments: Any) -> None:
        self.config = AdminConfig.read({"bootstrap": bootstrap, **arguments})
        self.cluster = Cluster(self.config, is_patient=self.config.wait_for_brokers)

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self.cluster.close()

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> dict[str, CreatedTopic]:
        """Create topics; raises for the first that cannot be."""
        wanted = [NewTopic(topic) if isinstance(topic, str) else topic for topic in listed("topics", topics)]
        limit_ms = self._limit_ms(timeout_ms)
        answer = await self._ask_controller(requests.create_topics(wanted, validate_only, limit_ms), limit_ms)
        return requests.created_topics(answer)

    async def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> CreatedTopic:
        """Create one topic; -1 leaves a number to the broker."""
        topic = NewTopic(name, partitions, replication_factor, configs, assignments)
        return (await self.create_topics([topic], validate_only=validate_only, timeout_ms=timeout_ms))[name]

    async def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> None:
        """Delete topics; raises for the first that cannot be."""
        wanted = texts(names)
        limit_ms = self._limit_ms(timeout_ms)
        answer = await self._ask_controller(requests.delete_topics(wanted, limit_ms), limit_ms)
        self.cluster.metadata.forget(wanted)
        requests.raise_first((item.name, item.error_code, item.error_message) for item in answer.responses)

    async def delete_topic(self, name: str, *, timeout_ms: int | None = None) -> None:
        """Delete one topic."""
        await self.delete_topics([name], timeout_ms=timeout_ms)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted."""
        topics = await self.cluster.refresh(None)
        return sorted(name for name, topic in topics.items() if include_internal or not topic.is_internal)

    async def describe_topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Describe topics (None: all); raises UNKNOWN_TOPIC_OR_PARTITION for one unknown for a second."""
        if names is None:
            answered = await self.cluster.refresh(None)
            return {name: requests.topic_description(name, answered[name]) for name in sorted(answered)}
        wanted = texts(names)
        async for _ in self.cluster.attempts(int(1000 * NEW_TOPIC_S)):
            answered = await self.cluster.refresh(wanted, alone=True)
            if not any(topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in answered.values()):
                break  # else the next broker that is asked may have heard of it already
        return {name: requests.topic_description(name, answered.get(name)) for name in wanted}

    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Raise the number of partitions of topics to the given totals.

        `assignments`: for each new partition of a topic, in order, the brokers that are to have it; else the controller
        chooses.
        """
        limit_ms = self._limit_ms(timeout_ms)
        request = requests.create_partitions(totals, assignments or {}, validate_only, limit_ms)
        answer = await self._ask_controller(request, limit_ms)
        requests.raise_first((item.name, item.error_code, item.error_message) for item in answer.results)

    async def delete_records(
        self, before: Mapping[Key, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete all records below the given offsets (-1: all); returns the new log start offsets."""
        limit_ms = self._limit_ms(timeout_ms)
        wanted: dict[TopicPartition, int] = {}
        for named, offset in mapping("partitions to offsets", before).items():
            wanted[partition_of(named)] = whole_number("an offset to delete up to", offset, 64)

        async def ask(
            leader: int, some: Mapping[TopicPartition, int], found: dict[TopicPartition, int]
        ) -> dict[TopicPartition, BrokerError]:
            connection = await self.cluster.connection(leader)
            answer = await connection.request(requests.delete_records(some, limit_ms), timeout=limit_ms / 1000)
            return requests.deleted_records(answer, leader, found)

        return await ask_leaders(self.cluster, wanted, ask, limit_ms)

    async def describe_configs(
        self, resource_type: ResourceType | str, names: Iterable[str | int], keys: Sequence[str] | None = None
    ) -> dict[str, dict[str, ConfigEntry]]:
        """Return the configuration of topics or brokers: name -> key -> entry. `keys` None: all."""
        kind = requests.resource_type(resource_type)
        results: dict[str, dict[str, ConfigEntry]] = {}
        for node, wanted in requests.by_node(kind, [str(name) for name in listed("names", names)]).items():
            answer = await self._ask_resource(requests.describe_configs(kind, wanted, keys), node)
            results |= requests.configs(answer)
        return results

    async def alter_configs(
        self,
        resource_type: ResourceType | str,
        name: str | int,
        changes: Mapping[str, str | None],
        *,
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change single keys of a topic or broker ("" is all brokers): None takes a key back to its default."""
        kind = requests.resource_type(resource_type)
        request = requests.alter_configs(kind, str(name), changes, append or {}, subtract or {}, validate_only)
        node = next(iter(requests.by_node(kind, [str(name)])))
        answer = await self._ask_resource(request, node)
        requests.raise_first((item.resource_name, item.error_code, item.error_message) for item in answer.responses)

    async def describe_cluster(self) -> ClusterDescription:
        """Return cluster id, controller and brokers."""
        return requests.cluster_description(await self.cluster.ask(requests.describe_cluster()))

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, topics: Iterable[str] | None = None
    ) -> list[LogDirDescription]:
        """Return the log directories of brokers (None: all) with their logs, of some topics or of all."""
        wanted = None if topics is None else set(texts(topics))
        if brokers is None:
            await self.cluster.refresh()
            brokers = sorted(self.cluster.metadata.nodes)
        found: list[LogDirDescription] = []
        for broker in brokers_of(brokers):
            answer = await self._ask_resource(requests.describe_log_dirs(), broker)
            found += requests.log_dirs(broker, answer, wanted)
        return found

    async def scrub(self, scrub_id: bytes, broker: int, partitions: Iterable[Partition] | None = None) -> Scrub | None:
        """Have a broker read its logs' closed segments again, now, or tell how far it is; None: it does not scrub.

        The id, 16 bytes of your choice, names this scrub: ask under it again, each minute at least, until it is over.
        Logs of these partitions are read that the broker has; None: all. Kafka's brokers do not scrub.
        """
        grouped = None if partitions is None else by_topic(partitions_of(partitions))
        if not isinstance(scrub_id, bytes) or len(scrub_id) != SCRUB_ID_BYTES:
            raise ConfigurationError(f"a scrub's id is {SCRUB_ID_BYTES} bytes, not {scrub_id!r}")
        return requests.scrub_state(broker, await self.cluster.ask(requests.scrub(scrub_id, grouped), broker))

    async def alter_replica_log_dirs(self, broker: int, directories: Mapping[Key, str]) -> None:
        """Move a broker's replicas to other log directories of its own (describe_log_dirs shows how far they are)."""
        request = requests.alter_replica_log_dirs(directories)
        answer = await self._ask_resource(request, whole_number("a broker's id", broker))
        for topic in answer.results:
            for item in topic.partitions:
                if item.error_code is not ErrorCode.NONE:
                    raise error_for(
                        item.error_code, topic=topic.topic_name, partition=item.partition_index, broker=broker
                    )

    async def list_offsets(
        self, wanted: Mapping[Key, int] | Iterable[Partition], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return offsets by timestamp in ms, or types.EARLIEST, LATEST (also without a mapping), MAX_TIMESTAMP."""
        items = wanted if isinstance(wanted, Mapping) else dict.fromkeys(partitions_of(wanted), LATEST)
        asked = {partition_of(key): whole_number("a timestamp", time, 64) for key, time in items.items()}
        return await list_offsets(self.cluster, asked, read_committed=read_committed)

    async def elect_leaders(
        self,
        partitions: Iterable[Partition] | None = None,
        election_type: ElectionType = ElectionType.PREFERRED,
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, BrokerError | None]:
        """Elect leaders of partitions (None: all); the answer says per partition what went wrong, if anything did."""
        grouped = None if partitions is None else by_topic(partitions_of(partitions))
        limit_ms = self._limit_ms(timeout_ms)
        answer = await self._ask_controller(requests.elect_leaders(grouped, election_type, limit_ms), limit_ms)
        requests.raise_first([("", answer.error_code, None)])
        return requests.elections(answer)

    async def alter_reassignments(
        self, replicas: Mapping[Key, Sequence[int] | None], *, timeout_ms: int | None = None
    ) -> None:
        """Move partitions to other brokers; None cancels a move under way."""
        limit_ms = self._limit_ms(timeout_ms)
        answer = await self._ask_controller(requests.alter_reassignments(replicas, limit_ms), limit_ms)
        requests.raise_first([("", answer.error_code, answer.error_message)])
        requests.raise_first(
            (f"{topic.name}-{item.partition_index}", item.error_code, item.error_message)
            for topic in answer.responses
            for item in topic.partitions
        )

    async def list_reassignments(
        self, partitions: Iterable[Partition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the moves under way (of some partitions, or all)."""
        grouped = None if partitions is None else by_topic(partitions_of(partitions))
        limit_ms = self._limit_ms(timeout_ms)
        request = requests.list_reassignments(grouped, limit_ms)
        answer = await self._ask_controller(request, limit_ms, changes_nothing=True)
        requests.raise_first([("", answer.error_code, answer.error_message)])
        return requests.reassignments(answer)

    async def _ask_resource(self, request: Message, node: int | None) -> Any:
        """Ask the broker whose configuration it is; topics' and defaults' are any broker's business."""
        if node is not None and node not in self.cluster.metadata.nodes:
            await self.cluster.refresh()
            if node not in self.cluster.metadata.nodes:
                raise error_for(ErrorCode.BROKER_NOT_AVAILABLE, "no such broker in the cluster", broker=node)
        return await self.cluster.ask(request, node)

    def _limit_ms(self, timeout_ms: int | None) -> int:
        """Return how long a call may take, unless it says itself."""
        if timeout_ms is None:
            return self.config.default_api_timeout_ms or self.config.request_timeout_ms
        limit_ms = whole_number("timeout_ms", timeout_ms)
        if limit_ms < 1:
            raise ConfigurationError(f"timeout_ms must be at least 1, not {timeout_ms!r}")
        return limit_ms

    async def _ask_controller(self, request: Message, timeout_ms: int, *, changes_nothing: bool = False) -> Any:
        """Ask the controller; when it moved, ask the new one.

        What changes something is sent once: a creation whose answer is lost may have happened, and the caller should
        know.
        """
        answer: Any = None
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        async for attempt in self.cluster.attempts(timeout_ms):
            try:
                async with asyncio.timeout_at(deadline):
                    if attempt:
                        await self.cluster.refresh()
                    connection = await self.cluster.connection(await self.cluster.controller())
            except OSError:
                if not self.cluster.metadata.nodes:
                    raise
                continue
            try:
                # The broker, which is told the time, says at its end what went wrong: that is waited for a little
                # longer.
                answer = await connection.request(request, timeout=timeout_ms / 1000 + min(5.0, timeout_ms / 4000))
            except NotConnected:
                if not changes_nothing:
                    raise
                continue
            if not requests.has_error(answer, ErrorCode.NOT_CONTROLLER):
                return answer
        if answer is None:
            raise NotConnected(f"the controller did not answer within {timeout_ms} ms")
        return answer

"""Administration of transactions: who is in one, which of them nobody will end, and ending them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from kbroker.client.cluster import Cluster
from kbroker.client.errors import BrokerError, error_for
from kbroker.client.group.coordinator import Coordinator, CoordinatorType
from kbroker.client.leaders import ask_leaders, sort_out
from kbroker.client.partition_names import Partition, partitions_of
from kbroker.client.types import (
    HangingTransaction,
    ProducerDescription,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)
from kbroker.client.values import listed, texts, whole_number
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import by_topic
from kbroker.protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    WriteTxnMarkersRequest,
)
from kbroker.protocol.schema import Message

LONGEST_TRANSACTION_MS = 15 * 60 * 1000
"""The brokers' default of transaction.max.timeout.ms: what is open for longer, no coordinator knows any more."""
FENCING_TIMEOUT_MS = 1
IDLE = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""States in which no transaction is open."""


class TransactionAdmin:
    """Admin's calls about transactions."""

    cluster: Cluster

    async def list_transactions(
        self, *, states: Iterable[str] = (), producer_ids: Iterable[int] = ()
    ) -> dict[str, TransactionListing]:
        """Return the transactional ids of all coordinators, sorted, of some states or producers or of all."""
        request = ListTransactionsRequest(
            state_filters=texts(states),
            producer_id_filters=[whole_number("a producer id", each, 64) for each in listed("ids", producer_ids)],
        )
        await self.cluster.refresh()
        found: dict[str, TransactionListing] = {}
        for node in sorted(self.cluster.metadata.nodes):
            answer = await self._listed_by(node, request)
            for item in answer.transaction_states:
                found[item.transactional_id] = TransactionListing(
                    item.transactional_id, item.transaction_state, item.producer_id, node
                )
        return dict(sorted(found.items()))

    async def _listed_by(self, node: int, request: ListTransactionsRequest) -> Any:
        """Ask a broker, again while it reads its log."""
        answer: Any = None
        async for _ in self.cluster.attempts(self.cluster.config.request_timeout_ms):
            answer = await self.cluster.ask(request, node)
            if not answer.error_code.retriable:
                break
        if answer.error_code is not ErrorCode.NONE:
            raise error_for(answer.error_code, "transactions", broker=node)
        if answer.unknown_state_filters:
            known = ", ".join(answer.unknown_state_filters)
            raise error_for(ErrorCode.INVALID_REQUEST, f"transactions have no state {known}", broker=node)
        return answer

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Describe transactional ids; raises TransactionalIdNotFoundError for one that its coordinator has not."""
        found = {}
        for name in texts(transactional_ids):
            coordinator = Coordinator(self.cluster, name, CoordinatorType.TRANSACTION)
            request = DescribeTransactionsRequest(transactional_ids=[name])
            answer = await coordinator.ask_until_taken(request, lambda answer: answer.transaction_states[0].error_code)
            item = answer.transaction_states[0]
            keys = [TopicPartition(topic.topic, index) for topic in item.topics for index in topic.partitions]
            found[name] = TransactionDescription(
                name,
                item.transaction_state,
                await coordinator.find(),
                item.producer_id,
                item.producer_epoch,
                item.transaction_timeout_ms,
                item.transaction_start_time_ms if item.transaction_state not in IDLE else None,
                tuple(sorted(keys)),
            )
        return found

    async def describe_producers(
        self, partitions: Iterable[Partition], *, broker: int | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Return the producers that have written to partitions lately, as their leaders (or one broker) know them."""
        wanted = dict.fromkeys(partitions_of(partitions))
        if broker is None:
            return await ask_leaders(self.cluster, wanted, self._ask_for_producers)
        found: dict[TopicPartition, list[ProducerDescription]] = {}
        for error in _read_producers(await self.cluster.ask(_about_producers(wanted), broker), broker, found).values():
            raise error
        return found

    async def _ask_for_producers(
        self, leader: int, wanted: Iterable[TopicPartition], found: dict[TopicPartition, list[ProducerDescription]]
    ) -> dict[TopicPartition, BrokerError]:
        return _read_producers(await self._ask_leader(leader, _about_producers(wanted)), leader, found)

    async def _ask_leader(self, leader: int, request: Message) -> Any:
        connection = await self.cluster.connection(leader)
        return await connection.request(request, timeout=self.cluster.config.request_timeout_ms / 1000)

    async def find_hanging_transactions(
        self,
        partitions: Iterable[Partition] | None = None,
        *,
        broker: int | None = None,
        longest_ms: int = LONGEST_TRANSACTION_MS,
    ) -> list[HangingTransaction]:
        """Find transactions open in partitions (None: all, or all of a broker) that no coordinator will end.

        Only those are looked at that have written nothing for `longest_ms`: no live transaction may take so long.
        """
        chosen = await self._all_partitions(broker) if partitions is None else partitions_of(partitions)
        latest = int(time.time() * 1000) - longest_ms
        suspects = [
            (key, producer)
            for key, producers in (await self.describe_producers(chosen, broker=broker)).items()
            for producer in producers
            if producer.transaction_start_offset is not None and producer.last_timestamp <= latest
        ]
        if not suspects:
            return []
        ids = sorted({producer.producer_id for _, producer in suspects})
        listed = await self.list_transactions(producer_ids=ids)
        names = {item.producer_id: name for name, item in listed.items()}
        hanging = []
        for key, producer in suspects:
            name = names.get(producer.producer_id, "")
            if not name or not await self._will_end(name, key, producer):
                hanging.append(HangingTransaction(key, producer, name))
        return hanging

    async def _will_end(self, name: str, key: TopicPartition, producer: ProducerDescription) -> bool:
        """Whether a transaction's coordinator has the partition in it, and so will end it."""
        try:
            known = (await self.describe_transactions([name]))[name]
        except BrokerError as error:
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            return False
        return known.producer_id == producer.producer_id and key in known.partitions

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Shut out whoever produces under these ids now, and abort what they have open; returns ids and epochs.

        An id that nobody has used yet is made by this, as by Kafka's.
        """
        fenced = {}
        for name in texts(transactional_ids):
            answer = await self._fence(name)
            fenced[name] = (answer.producer_id, answer.producer_epoch)
        return fenced

    async def _fence(self, transactional_id: str) -> InitProducerIdResponse:
        coordinator = Coordinator(self.cluster, transactional_id, CoordinatorType.TRANSACTION)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS)
        answer: InitProducerIdResponse = await coordinator.ask_until_taken(request, lambda answer: answer.error_code)
        return answer

    async def abort_transaction(self, transactional_id: str) -> None:
        """End whatever is open under a transactional id: its producer is shut out, what it has sent is aborted."""
        await self.describe_transactions([transactional_id])  # an id that nobody uses would be made by the request
        await self._fence(transactional_id)

    async def abort_hanging(self, hanging: HangingTransaction) -> None:
        """Have a partition's leader write where a transaction ends that no coordinator will end."""
        key, producer = hanging.partition, hanging.producer
        of = WriteTxnMarkersRequest
        topic = of.WritableTxnMarkerTopic(name=key.topic, partition_indexes=[key.partition])
        marker = of.WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=max(0, producer.coordinator_epoch),
        )

        async def ask(
            leader: int, wanted: Iterable[TopicPartition], found: dict[TopicPartition, ErrorCode]
        ) -> dict[TopicPartition, BrokerError]:
            answer = await self._ask_leader(leader, of(markers=[marker]))
            code = answer.markers[0].topics[0].partitions[0].error_code
            if code is not ErrorCode.NONE:
                return {key: error_for(code, topic=key.topic, partition=key.partition, broker=leader)}
            found[key] = code
            return {}

        await ask_leaders(self.cluster, {key: None}, ask)

    async def _all_partitions(self, broker: int | None) -> list[TopicPartition]:
        topics = await self.cluster.refresh(None)
        return [
            TopicPartition(name, index)
            for name, topic in topics.items()
            for index, known in topic.partitions.items()
            if known.leader >= 0 and (broker is None or broker in known.replicas)
        ]


def _about_producers(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    of = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(
        topics=[of(name=name, partition_indexes=indexes) for name, indexes in by_topic(partitions).items()]
    )


def _read_producers(
    answer: DescribeProducersResponse, broker: int, found: dict[TopicPartition, list[ProducerDescription]]
) -> dict[TopicPartition, BrokerError]:
    """Put what was answered into `found`; returns the errors."""
    return sort_out(
        answer.topics, broker, found, lambda item: [_producer(producer) for producer in item.active_producers]
    )


def _producer(item: Any) -> ProducerDescription:
    start = item.current_txn_start_offset
    return ProducerDescription(
        item.producer_id,
        item.producer_epoch,
        item.last_sequence,
        item.last_timestamp,
        item.coordinator_epoch,
        start if start >= 0 else None,
    )

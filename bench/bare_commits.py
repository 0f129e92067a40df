"""What of a transaction is the broker's: a bare client's waits for its answers. For bench/transactions.py.

Of what a client library measures, a part is its own: it makes and lets go of 10,000 messages, its threads wake each
other. Here a blocking socket sends one request after the other; what it sends is made before, and nothing else happens
until the answer is there.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.broker import Figures
from bench.systems import System
from kbroker.client.plain_connection import PlainConnection
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.schema import Message

BATCH_RECORDS = 1000
LIMIT_S = 60.0
AGAIN_S = 0.001


class BareProducer:
    """One transactional id on one connection; its transactions go over the first partitions of a topic."""

    def __init__(self, system: System, transactional_id: str, topic: str, partitions: int) -> None:
        self._id = transactional_id
        self._topic = topic
        self._partitions = range(partitions)
        self._sequences = [0] * partitions
        self._waited = 0.0
        self._connection = PlainConnection("127.0.0.1", system.port, client_id="bare", timeout=LIMIT_S)
        begin = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        while (answer := self._connection.request(begin, 2)).error_code is not ErrorCode.NONE:
            time.sleep(AGAIN_S)
        self._producer = int(answer.producer_id), int(answer.producer_epoch)

    def transact(self, size: int, record: bytes) -> tuple[float, float]:
        """Write and commit so many records; returns the seconds of waiting for EndTxn, and for all answers."""
        self._waited = 0.0
        self._add()
        each = size // len(self._partitions)
        for first in range(0, each, BATCH_RECORDS):
            self._produce(min(BATCH_RECORDS, each - first), record)
        end = EndTxnRequest(
            transactional_id=self._id, producer_id=self._producer[0], producer_epoch=self._producer[1], committed=True
        )
        before = self._waited
        _expect_none(self._ask(end, 1).error_code, "EndTxn")
        return self._waited - before, self._waited

    def close(self) -> None:
        """Leave."""
        self._connection.close()

    def _ask(self, request: Message, version: int) -> Any:
        began = time.monotonic()
        answer = self._connection.request(request, version)
        self._waited += time.monotonic() - began
        return answer

    def _add(self) -> None:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=self._topic, partitions=list(self._partitions))
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer[0],
            v3_and_below_producer_epoch=self._producer[1],
            v3_and_below_topics=[topic],
        )
        error = ErrorCode.CONCURRENT_TRANSACTIONS
        while error is ErrorCode.CONCURRENT_TRANSACTIONS:
            (answer,) = self._ask(add, 2).results_by_topic_v3_and_below
            error = answer.results_by_partition[0].partition_error_code
        _expect_none(error, "AddPartitionsToTxn")

    def _produce(self, count: int, record: bytes) -> None:
        now = int(time.time() * 1000)
        written = []
        for partition in self._partitions:
            builder = BatchBuilder(1 << 30)
            for _ in range(count):
                builder.append(None, record, (), now)
            batch = builder.build(*self._producer, self._sequences[partition], transactional=True)
            self._sequences[partition] += count
            written.append(ProduceRequest.PartitionProduceData(index=partition, records=batch))
        topic = ProduceRequest.TopicProduceData(name=self._topic, partition_data=written)
        request = ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=60_000, topic_data=[topic])
        (answer,) = self._ask(request, 8).responses
        for partition_answer in answer.partition_responses:
            _expect_none(partition_answer.error_code, "Produce")


def bare_commits(system: System, topic: str, size: int, partitions: int, count: int, record: bytes) -> Figures:
    """Write so many transactions one after the other; the first two are not counted."""
    producer = BareProducer(system, f"bare-{size}-{partitions}", topic, partitions)
    ends, alls = zip(*[producer.transact(size, record) for _ in range(count + 2)][2:], strict=True)
    producer.close()
    return {
        "median wait for EndTxn, bare client: ms": 1e3 * statistics.median(ends),
        "median wait for all answers, bare client: ms": 1e3 * statistics.median(alls),
    }


def _expect_none(error: ErrorCode, api: str) -> None:
    if error is not ErrorCode.NONE:
        raise RuntimeError(f"{api} was answered {error.name}")

"""The producer's sender against a network with random faults; its broker keeps a real log's producer state.

Whatever is lost, refused, split or given up: no record is stored twice or before an earlier one, what is acknowledged
is where its future says, and callbacks come in the order of the records.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbroker.client.accumulator import Delivery
from kbroker.client.client_config import ProducerConfig
from kbroker.client.errors import BrokerError, DeliveryTimeout
from kbroker.client.metadata import Node, PartitionMetadata, TopicMetadata
from kbroker.client.sender import Sender
from kbroker.client.types import RecordMetadata
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from kbroker.protocol.records.batch import read_header
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.producer_state import ProducerState

TOPIC = "t"
PARTITIONS = 2
LIMIT_S = 20.0


class Fate(Enum):
    """What becomes of one batch of a request."""

    STORED = auto()
    REFUSED_FOR_NOW = auto()
    REFUSED = auto()
    """For good, unless it is stored already; so TOO_LARGE."""
    TOO_LARGE = auto()
    LOST = auto()
    """The connection ends before the request arrives."""
    ANSWER_LOST = auto()
    """The request is carried out, then the connection ends."""
    LOST_AND_TOO_LATE = auto()
    """LOST, and the oldest batch has used up its time."""
    ANSWER_LOST_AND_TOO_LATE = auto()
    NOT_SENT = auto()
    """The connection takes no request."""
    ANSWERED_LATER = auto()
    """STORED, but this answer and all behind it take a while."""


ENDING = {Fate.LOST, Fate.ANSWER_LOST, Fate.LOST_AND_TOO_LATE, Fate.ANSWER_LOST_AND_TOO_LATE}
CARRIED_OUT = {Fate.STORED, Fate.ANSWER_LOST, Fate.ANSWER_LOST_AND_TOO_LATE, Fate.ANSWERED_LATER}
REFUSALS = {
    Fate.REFUSED_FOR_NOW: ErrorCode.NOT_ENOUGH_REPLICAS,
    Fate.REFUSED: ErrorCode.INVALID_RECORD,
    Fate.TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
}


class PlayedNetwork:
    """A cluster of one broker as the sender sees it: brokers, connections, answers."""

    def __init__(self, fates: Sequence[Fate]) -> None:
        self.fates = deque(fates)
        self.logs: dict[int, list[bytes]] = defaultdict(list)
        self.states: dict[int, ProducerState] = defaultdict(ProducerState)
        self.metadata = self
        self.nodes = {1: Node(1, "played", 1)}
        partitions = {p: PartitionMetadata(p, 1, 1, (1,), (1,), (), ErrorCode.NONE) for p in range(PARTITIONS)}
        self.topics = {TOPIC: TopicMetadata(TOPIC, bytes(16), False, ErrorCode.NONE, partitions)}
        self.refreshed: list[Callable[[], None]] = []
        self.is_metadata_old = False
        self.sender: Sender | None = None
        self.now: PlayedConnection | None = None
        self.producer_ids = 0

    def leader(self, topic: str, partition: int) -> PartitionMetadata | None:
        return self.topics[topic].partitions[partition]

    def open_connection(self, node_id: int) -> PlayedConnection | None:
        return None if self.now is None or self.now.is_ended else self.now

    async def connection(self, node_id: int) -> PlayedConnection:
        await asyncio.sleep(0)
        self.now = PlayedConnection(self)
        return self.now

    async def ask(self, request: object, timeout_ms: int) -> Any:
        self.producer_ids += 1

        class Answer:
            error_code, producer_id, producer_epoch = ErrorCode.NONE, self.producer_ids, 0

        return Answer

    async def refresh(self, topics: object) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        if self.now is not None:
            self.now.end()

    def store(self, partition: int, data: bytes) -> tuple[ErrorCode, int]:
        """What a broker's log does."""
        header, log, state = read_header(data, 0), self.logs[partition], self.states[partition]
        try:
            known = state.check(header, True)
        except KafkaError as error:
            return error.code, -1
        if known is not None:
            return ErrorCode.NONE, known.first_offset
        base_offset = len(log)
        log += [record.value or b"" for record in decode_batch(data)]
        state.append(header, base_offset, 0, None)
        return ErrorCode.NONE, base_offset

    def has_stored(self, partition: int, data: bytes) -> bool:
        header = read_header(data, 0)
        entry = self.states[partition].producers.get(header.producer_id)
        return entry is not None and entry.duplicate_of(header) is not None

    def let_time_pass(self, partition: int) -> None:
        """The oldest batch of the partition is too old now."""
        assert self.sender is not None
        queue = self.sender.accumulator.topics[TOPIC].queues[partition]
        if queue.sent:
            queue.sent[0].deadline = 0.0


class PlayedConnection:
    """Carries requests out and answers them in order, until it ends."""

    address = "played:1"

    def __init__(self, network: PlayedNetwork) -> None:
        self.network = network
        self.is_ended = False
        self.waiting: deque[tuple[asyncio.Future[Any], ProduceResponse]] = deque()
        self.is_slow = 0

    def version_for(self, request_type: type) -> int:
        if self.network.fates and self.network.fates[0] is Fate.NOT_SENT:
            self.network.fates.popleft()
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "for once")
        return 11

    def send(self, request: ProduceRequest, version: int) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        (topic,) = request.topic_data
        results = []
        for data in topic.partition_data:
            fate = self.network.fates.popleft() if self.network.fates else Fate.STORED
            if fate is Fate.NOT_SENT:
                fate = Fate.STORED  # too late for that
            if fate in (Fate.REFUSED, Fate.TOO_LARGE) and self.network.has_stored(data.index, bytes(data.records)):
                fate = Fate.STORED
            code, offset = REFUSALS.get(fate, ErrorCode.NONE), -1
            if not self.is_ended and fate in CARRIED_OUT:
                code, offset = self.network.store(data.index, bytes(data.records))
            if fate in ENDING:
                self.is_ended = True
            if fate in (Fate.LOST_AND_TOO_LATE, Fate.ANSWER_LOST_AND_TOO_LATE):
                self.network.let_time_pass(data.index)
            self.is_slow += fate is Fate.ANSWERED_LATER
            results.append(
                ProduceResponse.PartitionProduceResponse(index=data.index, error_code=code, base_offset=offset)
            )
        answer = ProduceResponse.TopicProduceResponse(name=TOPIC, partition_responses=results)
        self.waiting.append((future, ProduceResponse(responses=[answer])))
        loop.call_later(0.002 if self.is_slow else 0, self.answer)
        return future

    def answer(self) -> None:
        if self.is_ended:
            self.end()
        elif self.waiting:
            future, answer = self.waiting.popleft()
            if not future.done():
                future.set_result(answer)

    def end(self) -> None:
        self.is_ended = True
        for future, _ in self.waiting:
            if not future.done():
                future.set_exception(ConnectionError("the connection has ended"))
        self.waiting.clear()

    abort = end


class Heard:
    """What the callbacks say, partition by partition."""

    def __init__(self) -> None:
        self.values: dict[int, list[int]] = defaultdict(list)
        self.errors: dict[int, Exception] = {}
        self.places: dict[int, tuple[int, int]] = {}

    def listener(self, number: int, partition: int) -> Callable[[RecordMetadata | None, Exception | None], None]:
        def hear(metadata: RecordMetadata | None, error: Exception | None) -> None:
            self.values[partition].append(number)
            if metadata is None:
                assert error is not None
                self.errors[number] = error
            else:
                self.places[number] = (metadata.partition, metadata.offset)

        return hear


async def play(fates: Sequence[Fate], records: int, per_batch: int) -> tuple[PlayedNetwork, Heard, list[Delivery]]:
    """Send records, waiting now and then, until all have an outcome."""
    config = ProducerConfig(bootstrap="played:1", linger_ms=0, retry_backoff_ms=1, retry_backoff_max_ms=1)
    network, heard = PlayedNetwork(fates), Heard()
    network.sender = sender = Sender(config, cast(Any, network))
    accumulator = sender.accumulator
    accumulator.learn(TOPIC, PARTITIONS)
    deliveries = []
    for number in range(records):
        partition = number // per_batch % PARTITIONS
        listener = heard.listener(number, partition)
        delivery = accumulator.append(TOPIC, b"%d" % number, None, partition, 1, (), listener)
        assert delivery is not None
        deliveries.append(delivery)
        if number % per_batch == per_batch - 1:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    async with asyncio.timeout(LIMIT_S):
        await sender.flush()
    assert accumulator.used == 0
    assert all(queue.is_idle and not queue.in_flight for queue in accumulator.topics[TOPIC].queues)
    await sender.close(1)
    return network, heard, deliveries


def check(network: PlayedNetwork, heard: Heard, deliveries: list[Delivery]) -> None:
    for log in network.logs.values():
        numbers = [int(value) for value in log]
        assert numbers == sorted(set(numbers)), f"stored twice, or in another order: {numbers}"
    for partition, numbers in heard.values.items():
        assert numbers == sorted(numbers), f"callbacks of partition {partition} come in another order: {numbers}"
    assert sum(map(len, heard.values.values())) == len(deliveries)
    for number, delivery in enumerate(deliveries):
        error = delivery.exception(0)
        if error is None:
            partition, offset = heard.places[number]
            assert network.logs[partition][offset] == b"%d" % number
        else:
            assert error is heard.errors[number]
            is_refused = isinstance(error, BrokerError) and error.code in REFUSALS.values()
            assert is_refused or isinstance(error, DeliveryTimeout), f"record {number}: {error!r}"
            is_stored = any(b"%d" % number in log for log in network.logs.values())
            assert not (is_refused and is_stored), f"record {number} was refused and is stored"


S, A, L = Fate.STORED, Fate.ANSWER_LOST, Fate.LOST


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(list(Fate)), max_size=25), st.integers(1, 60), st.integers(1, 4))
@example([S, S, S, S, Fate.REFUSED, S, S, S], 24, 2)  # those behind a refused one are sent already
@example([S, S, Fate.ANSWER_LOST_AND_TOO_LATE, A, A], 24, 2)  # given up, stored all the same; so are those behind it
@example([S, S, Fate.LOST_AND_TOO_LATE, S, S], 24, 2)
@example([Fate.REFUSED_FOR_NOW, S, S], 12, 2)  # the first of all
@example([Fate.NOT_SENT] * 3, 1, 1)
@example([S, S, Fate.ANSWERED_LATER, Fate.TOO_LARGE, S, L], 24, 4)
def test_whatever_the_network_does_records_are_stored_once_and_in_order(
    fates: list[Fate], records: int, per_batch: int
) -> None:
    check(*asyncio.run(play(fates, records, per_batch)))

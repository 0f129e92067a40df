"""A cluster of one broker as a producer's sender sees it: random faults, and a real log's producer state."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from typing import Any

from kbroker.client.metadata import Node, PartitionMetadata, TopicMetadata
from kbroker.client.sender import Sender
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from kbroker.protocol.records.batch import read_header
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.producer_state import ProducerState

TOPIC = "t"
PARTITIONS = 2


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
    ANSWERED_TOO_LATE = auto()
    """ANSWERED_LATER, and the oldest batch has used up its time before."""
    OUT_OF_ORDER = auto()
    """The broker says that it lacks something before it, unless it has stored it already."""


ENDING = {Fate.LOST, Fate.ANSWER_LOST, Fate.LOST_AND_TOO_LATE, Fate.ANSWER_LOST_AND_TOO_LATE}
LATE = {Fate.LOST_AND_TOO_LATE, Fate.ANSWER_LOST_AND_TOO_LATE, Fate.ANSWERED_TOO_LATE}
SLOW = {Fate.ANSWERED_LATER, Fate.ANSWERED_TOO_LATE}
CARRIED_OUT = {Fate.STORED, Fate.ANSWER_LOST, Fate.ANSWER_LOST_AND_TOO_LATE, *SLOW}
REFUSALS = {
    Fate.REFUSED_FOR_NOW: ErrorCode.NOT_ENOUGH_REPLICAS,
    Fate.REFUSED: ErrorCode.INVALID_RECORD,
    Fate.TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
    Fate.OUT_OF_ORDER: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


def topic_with_leaders(leaders: Sequence[int]) -> TopicMetadata:
    """Partitions with these leaders; -1: none."""
    partitions = {
        number: PartitionMetadata(number, leader, 1, (1,), (1,), (), ErrorCode.NONE)
        for number, leader in enumerate(leaders)
    }
    return TopicMetadata(TOPIC, bytes(16), False, ErrorCode.NONE, partitions)


class PlayedNetwork:
    """A cluster of one broker as the sender sees it: brokers, connections, answers."""

    def __init__(self, fates: Sequence[Fate]) -> None:
        self.fates = deque(fates)
        self.logs: dict[int, list[bytes]] = defaultdict(list)
        self.states: dict[int, ProducerState] = defaultdict(ProducerState)
        self.metadata = self
        self.nodes = {1: Node(1, "played", 1)}
        self.topics = {TOPIC: topic_with_leaders([1] * PARTITIONS)}
        self.refreshed: list[Callable[[], None]] = []
        self.is_metadata_old = False
        self.sender: Sender | None = None
        self.now: PlayedConnection | None = None
        self.producer_ids = 0
        self.id_errors: deque[ErrorCode | OSError] = deque()
        """What the next ones who want a producer id get instead."""
        self.answers_may_go = asyncio.Event()
        self.answers_may_go.set()

    def leader(self, topic: str, partition: int) -> PartitionMetadata | None:
        found = self.topics[topic].partitions[partition]
        return found if found.leader in self.nodes else None

    def led_partitions(self, topic: str) -> list[int]:
        return [number for number in self.topics[topic].partitions if self.leader(topic, number)]

    def forget(self, topics: Iterable[str]) -> None:
        """Nobody looks at them meanwhile, and the next refresh brings them back."""

    def open_connection(self, node_id: int) -> PlayedConnection | None:
        return None if self.now is None or self.now.is_ended else self.now

    async def connection(self, node_id: int) -> PlayedConnection:
        await asyncio.sleep(0)
        self.now = PlayedConnection(self)
        return self.now

    async def ask(self, request: object, timeout_ms: int) -> Any:
        self.producer_ids += 1
        for _ in range(5):  # longer than it takes to connect
            await asyncio.sleep(0)

        error = self.id_errors.popleft() if self.id_errors else ErrorCode.NONE
        if isinstance(error, OSError):
            raise error

        class Answer:
            error_code, producer_id, producer_epoch = error, self.producer_ids, 0

        return Answer

    async def refresh(self, topics: object) -> None:
        await asyncio.sleep(0)
        for listener in self.refreshed:
            listener()

    def note_failure(self, error: Exception) -> None:
        raise AssertionError(f"refresh does not fail here: {error}")

    async def close(self) -> None:
        if self.now is not None:
            self.now.end()

    def store(self, partition: int, data: bytes) -> tuple[ErrorCode, int]:
        """What a broker's log does."""
        header, log, state = read_header(data, 0), self.logs[partition], self.states[partition]
        assert header.producer_id > 0, "without an id what is sent again is stored twice"
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
            self.sender.wake()


class PlayedConnection:
    """Carries requests out and answers them in order, until it ends."""

    address = "played:1"

    def __init__(self, network: PlayedNetwork) -> None:
        self.network = network
        self.is_ended = False
        self.waiting: deque[tuple[asyncio.Future[Any], ProduceResponse]] = deque()
        self.is_slow = 0

    def version_for(self, request_type: type, highest: int | None = None) -> int:
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
            if fate in (Fate.REFUSED, Fate.TOO_LARGE, Fate.OUT_OF_ORDER) and self.network.has_stored(
                data.index, bytes(data.records)
            ):
                fate = Fate.STORED
            code, offset = REFUSALS.get(fate, ErrorCode.NONE), -1
            if not self.is_ended and fate in CARRIED_OUT:
                code, offset = self.network.store(data.index, bytes(data.records))
            if fate in ENDING:
                self.is_ended = True
            if fate in LATE:
                self.network.let_time_pass(data.index)
            self.is_slow += fate in SLOW
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
        elif not self.network.answers_may_go.is_set():
            asyncio.get_running_loop().call_later(0.002, self.answer)
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

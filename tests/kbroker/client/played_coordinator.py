"""A played network with a transaction coordinator: what is asked of it may be lost, or arrive late.

Partitions verify what begins a transaction with the coordinator, as brokers do (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum, auto
from typing import Any

from kbroker.client.client_config import ProducerConfig
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kbroker.protocol.records.batch import read_header
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.producer_state import Marker
from tests.kbroker.client.played_network import Fate, PlayedConnection, PlayedNetwork

PRODUCER_ID = 7
Marked = ControlType | bytes


class Asked(Enum):
    """What becomes of one request to the coordinator."""

    ANSWERED = auto()
    LOST = auto()
    """The connection ends before it arrives."""
    ANSWER_LOST = auto()
    """It is carried out, then the connection ends."""
    CONCURRENT = auto()
    LOADING = auto()
    MOVED = auto()
    """Refused with these errors, which pass."""
    ABORTABLE = auto()
    """Refused for this transaction, unless an id or its end is asked for."""


PASSING = {
    Asked.CONCURRENT: ErrorCode.CONCURRENT_TRANSACTIONS,
    Asked.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Asked.MOVED: ErrorCode.NOT_COORDINATOR,
    Asked.ABORTABLE: ErrorCode.TRANSACTION_ABORTABLE,
}


class PlayedCoordinator(PlayedNetwork):
    """One broker that leads all partitions and coordinates the transactions of one id."""

    def __init__(
        self, config: ProducerConfig, fates: Sequence[Fate], asked: Sequence[Asked], transaction_version: int = 0
    ) -> None:
        super().__init__(fates)
        self.has_epoch_each = transaction_version == 2
        self.follows_features = False
        self.config = config
        self.asked = deque(asked)
        self.epoch = -1
        self.last_epoch = -1
        self.state = "Empty"
        self.partitions: set[int] = set()
        self.shown: dict[int, list[Marked]] = {}
        """What lies in each partition, markers included."""
        self.finds_to_refuse = 0
        """So many times more the broker says that the coordinator is not known."""
        self.straying: deque[Callable[[], object]] = deque()
        """Produce requests whose connection has ended, and that arrive all the same."""

    def feature_level(self, feature: str) -> int:
        assert feature == "transaction.version"
        return 2 if self.has_epoch_each else 0

    async def attempts(self, timeout_ms: int) -> AsyncIterator[int]:
        for number in range(100):
            yield number
            await asyncio.sleep(0.001)

    async def any_connection(self) -> TransactionalConnection:
        return await self.connection(1)

    async def connection(self, node_id: int, channel: str = "control") -> TransactionalConnection:
        await asyncio.sleep(0)
        if not isinstance(self.now, TransactionalConnection) or self.now.is_ended:
            self.now = TransactionalConnection(self)
        return self.now

    # --- the partitions ---------------------------------------------------------------------------------------

    def store(self, partition: int, data: bytes) -> tuple[ErrorCode, int]:
        header, state = read_header(data, 0), self.states[partition]
        assert header.is_transactional
        log = self.shown.setdefault(partition, [])
        try:
            verified = state.verify(
                header.producer_id, header.base_sequence, header.producer_epoch, self.has_epoch_each
            )
        except KafkaError as error:
            return error.code, -1
        if verified is not None:
            if header.producer_epoch != self.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH, -1
            if self.has_epoch_each:
                self.state = "Ongoing"
                self.partitions.add(partition)
            elif self.state != "Ongoing" or partition not in self.partitions:
                return ErrorCode.TRANSACTION_ABORTABLE, -1
        try:
            known = state.check(header, True, verified)
        except KafkaError as error:
            return error.code, -1
        if known is not None:
            return ErrorCode.NONE, known.first_offset
        base_offset = len(log)
        log += [record.value or b"" for record in decode_batch(data)]
        state.append(header, base_offset, 0, None)
        return ErrorCode.NONE, base_offset

    def stray(self, count: int = 1) -> None:
        """Let requests arrive that nobody waits for any more."""
        for _ in range(min(count, len(self.straying))):
            self.straying.popleft()()

    def _mark(self, kind: ControlType) -> None:
        for partition in self.partitions:
            log = self.shown.setdefault(partition, [])
            header = read_header(control_batch(kind, PRODUCER_ID, self.epoch, 0, 0), 0)
            self.states[partition].append(header, len(log), 0, Marker(kind, 0))
            log.append(kind)
        self.partitions = set()

    def read_committed(self, partition: int) -> tuple[list[int], list[int]]:
        """The numbers that are committed, and those that are not decided."""
        committed: list[int] = []
        undecided: list[int] = []
        for entry in self.shown.get(partition, []):
            if isinstance(entry, bytes):
                undecided.append(int(entry))
                continue
            if entry is ControlType.COMMIT:
                committed += undecided
            undecided = []
        return committed, undecided

    def time_out(self, lets_back_in: bool) -> None:
        """The coordinator ends what has been open for too long, and takes the epoch away."""
        self.last_epoch = self.epoch if lets_back_in or self.has_epoch_each else -1
        self.epoch += 1
        self._mark(ControlType.ABORT)
        self.state = "CompleteAbort"

    # --- the coordinator --------------------------------------------------------------------------------------

    def carry_out(self, message: Any) -> Any:
        """Do what a coordinator does, in Kafka's order of checks."""
        if isinstance(message, FindCoordinatorRequest):
            of = FindCoordinatorResponse
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if self.finds_to_refuse else ErrorCode.NONE
            self.finds_to_refuse = max(0, self.finds_to_refuse - 1)
            return of(coordinators=[of.Coordinator(key="x", node_id=1, host="played", port=1, error_code=code)])
        if isinstance(message, InitProducerIdRequest):
            return self._identify(message.producer_epoch)
        if isinstance(message, DescribeTransactionsRequest):
            return described(self.state, PRODUCER_ID, self.epoch)
        if isinstance(message, EndTxnRequest):
            end = self._end_each if self.has_epoch_each else self._end
            code = end(message.producer_epoch, message.committed)
            return EndTxnResponse(error_code=code, producer_id=PRODUCER_ID, producer_epoch=self.epoch)
        assert isinstance(message, AddPartitionsToTxnRequest)
        return refused(message, self._add(message))

    def _identify(self, epoch: int) -> InitProducerIdResponse:
        code = ErrorCode.NONE
        if self.state == "Ongoing":
            # As Kafka: fenced first, whatever epoch is named, and asked again.
            self.last_epoch = self.epoch if self.has_epoch_each else -1
            self.epoch += 1
            self._mark(ControlType.ABORT)
            self.state = "CompleteAbort"
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        elif epoch in (-1, self.epoch):
            self.last_epoch, self.epoch, self.state = epoch, self.epoch + 1, "Empty"
        elif epoch == self.last_epoch:
            self.state = "Empty"
        else:
            code = ErrorCode.PRODUCER_FENCED
        return InitProducerIdResponse(error_code=code, producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _add(self, message: AddPartitionsToTxnRequest) -> ErrorCode:
        if message.v3_and_below_producer_epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        self.state = "Ongoing"
        self.partitions |= {index for topic in message.v3_and_below_topics for index in topic.partitions}
        return ErrorCode.NONE

    def _end(self, epoch: int, committed: bool) -> ErrorCode:
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        wanted = "CompleteCommit" if committed else "CompleteAbort"
        if self.state == "Ongoing":
            self._mark(ControlType.COMMIT if committed else ControlType.ABORT)
            self.state = wanted
        return ErrorCode.NONE if self.state == wanted else ErrorCode.INVALID_TXN_STATE

    def _end_each(self, epoch: int, committed: bool) -> ErrorCode:
        """Each transaction has an epoch of its own."""
        wanted = "CompleteCommit" if committed else "CompleteAbort"
        if epoch == self.epoch - 1 and self.state.startswith("Complete"):
            return ErrorCode.NONE if self.state == wanted else ErrorCode.INVALID_TXN_STATE
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        if committed and self.state != "Ongoing":
            return ErrorCode.INVALID_TXN_STATE
        self.last_epoch, self.epoch = self.epoch, self.epoch + 1
        self._mark(ControlType.COMMIT if committed else ControlType.ABORT)
        self.state = wanted
        return ErrorCode.NONE


def can_be_aborted(message: Any) -> bool:
    """Whether a request may be answered with an error that ends the transaction."""
    return isinstance(message, AddPartitionsToTxnRequest) or (isinstance(message, EndTxnRequest) and message.committed)


def described(
    state: str, producer_id: int, epoch: int, code: ErrorCode = ErrorCode.NONE
) -> DescribeTransactionsResponse:
    """The answer of who tells what is open."""
    of = DescribeTransactionsResponse
    one = of.TransactionState(
        error_code=code,
        transactional_id="x",
        transaction_state=state,
        transaction_timeout_ms=1,
        transaction_start_time_ms=-1,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[],
    )
    return of(transaction_states=[one])


def refused(message: Any, code: ErrorCode) -> Any:
    """The answer to a request, with this error."""
    if isinstance(message, InitProducerIdRequest):
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if isinstance(message, EndTxnRequest):
        return EndTxnResponse(error_code=code)
    if isinstance(message, DescribeTransactionsRequest):
        return described("", -1, -1, code)
    of = AddPartitionsToTxnResponse
    results = [
        of.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                of.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic in message.v3_and_below_topics
    ]
    return of(results_by_topic_v3_and_below=results)


class TransactionalConnection(PlayedConnection):
    """Carries requests to the coordinator too."""

    network: PlayedCoordinator

    def send(self, request: ProduceRequest, version: int) -> asyncio.Future[Any]:
        is_lost = bool(self.network.fates) and self.network.fates[0] in (Fate.LOST, Fate.LOST_AND_TOO_LATE)
        if is_lost:
            for data in request.topic_data[0].partition_data:
                stored = data.index, bytes(data.records)
                self.network.straying.append(lambda stored=stored: self.network.store(*stored))  # type: ignore[misc]
        return super().send(request, version)

    async def request(self, message: Any, version: int | None, *, timeout: float) -> Any:
        await asyncio.sleep(0)
        network = self.network
        network.stray()
        if self.is_ended:
            raise ConnectionError("the connection has ended")
        if isinstance(message, FindCoordinatorRequest):
            return network.carry_out(message)
        fate = network.asked.popleft() if network.asked else Asked.ANSWERED
        if fate is Asked.ABORTABLE and not (network.state == "Ongoing" and can_be_aborted(message)):
            fate = Asked.LOADING
        if fate in PASSING:
            return refused(message, PASSING[fate])
        if fate is not Asked.LOST:
            answer = network.carry_out(message)
        if fate is not Asked.ANSWERED:
            self.end()
            raise ConnectionError("the connection has ended")
        return answer

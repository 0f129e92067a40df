"""The coordinator of the transactions whose partition of __transaction_state this broker leads.

What events mean to a transactional id is in transaction.py (pure); here they are found, made and forgotten, and what
they ask for is done:

    handlers        --> init_producer_id, add_partitions, end  --> Transaction --> records to the log, markers to the
    replica manager --> leadership_changed                                         MarkerSender, answers to futures
    time            --> abort_timed_out, expire

Who asks for an id that is not here is answered 15 this coordinator does not run, 14 it is still reading the partition,
16 another broker leads it. Everything runs on the broker's event loop.

EndTxn is answered when the decision is in the log, and its markers follow; a producer goes on at once. What it asks for
before these are written is not refused but waits for them (waiting_room.py), and is then asked as if it came just now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kbroker.cluster.topic_names import TRANSACTIONS_TOPIC
from kbroker.coordinator.append_errors import transaction_error
from kbroker.coordinator.marker_sender import Ending, MarkerSender
from kbroker.coordinator.owned_partitions import OwnedPartition, OwnedPartitions
from kbroker.coordinator.topic_log import TopicLog
from kbroker.coordinator.topic_once import TopicOnce
from kbroker.coordinator.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EPOCH_EACH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARE_COMMIT,
    Answer,
    Instruction,
    SendMarkers,
    Transaction,
    TransactionRecord,
    Write,
)
from kbroker.coordinator.transaction_loading import load_transactions
from kbroker.coordinator.transaction_records import transaction_key, transaction_value
from kbroker.coordinator.waiting_room import WaitingRoom
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.replica.clocks import steady_ms
from kbroker.replica.turns import Turn
from kbroker.segment.log import Log

if TYPE_CHECKING:
    from kbroker.cluster.producer_id_manager import ProducerIdManager
    from kbroker.config.broker_config import BrokerConfig
    from kbroker.replica.replica_manager import ReplicaManager

log = logging.getLogger(__name__)

T = TypeVar("T")

ALL_IN_SYNC = -1
UNCOMPRESSED = 0
APPEND_AGAIN_S = 0.1
"""After a record that must be written was not."""


@dataclass(slots=True, eq=False)
class TransactionsPartition(OwnedPartition):
    """One partition of __transaction_state with its transactional ids."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    endings: dict[str, Ending] = field(default_factory=dict)
    """Whose markers are being written."""
    since: float = field(default_factory=monotonic)
    """When this broker became the coordinator."""


class Features(Protocol):
    """What is asked of the ClusterFeatures."""

    @property
    def transaction_version(self) -> int:
        """From 2 on each transaction has an epoch of its own."""


class TransactionCoordinator:
    """See the module. `start` before the first leadership comes, `stop` before the log closes."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        producer_ids: ProducerIdManager,
        markers: MarkerSender,
        features: Features,
        executor: Executor | None = None,
        clock: Callable[[], int] = steady_ms,
    ) -> None:
        self.config = config
        self.topic = TopicOnce(TRANSACTIONS_TOPIC)
        self._replicas = replicas
        self._producer_ids = producer_ids
        self._markers = markers
        self._clock = clock
        self._features = features
        self._chores: set[asyncio.Future[Any]] = set()
        self._waiting = WaitingRoom(self._is_busy)
        self._owned = OwnedPartitions(
            TRANSACTIONS_TOPIC,
            config.transaction_state_log_num_partitions,
            replicas,
            executor,
            lambda partition, leader_epoch: TransactionsPartition(partition, leader_epoch, self._make_log(partition)),
            self._read,
            self._partition_started,
            self._partition_resigned,
            only_committed=True,
        )

    def _make_log(self, partition: int) -> TopicLog:
        timeout_ms = self.config.request_timeout_ms
        replicas = self._replicas
        return TopicLog(replicas, TRANSACTIONS_TOPIC, partition, replicas.clock, ALL_IN_SYNC, timeout_ms, UNCOMPRESSED)

    # --- life -------------------------------------------------------------------------------------------------

    def start(self, partition_count: int | None = None) -> None:
        """Begin to coordinate. `partition_count`: of __transaction_state, when the topic exists already."""
        if partition_count is not None:
            self._owned.count = partition_count
        self._owned.is_active = True
        config = self.config
        self._spawn(
            _regularly(
                config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self.abort_timed_out_transactions
            )
        )
        self._spawn(
            _regularly(config.transaction_remove_expired_transaction_cleanup_interval_ms, self.expire_transactional_ids)
        )

    async def stop(self) -> None:
        """Answer whoever waits and give up all partitions."""
        self._owned.resign_all()
        self.topic.cancel()
        for task in list(self._chores):
            task.cancel()
        if self._chores:
            await asyncio.wait(self._chores)
        await self._markers.close()
        await self._owned.finish()

    def _spawn(self, work: Awaitable[T]) -> asyncio.Future[T]:
        task = asyncio.ensure_future(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        return task

    # --- leadership -------------------------------------------------------------------------------------------

    def leadership_changed(self, elected: Sequence[Key], resigned: Sequence[Key]) -> None:
        """This broker began and ceased to lead partitions."""
        self._owned.leadership_changed(elected, resigned)

    def _read(self, owned: TransactionsPartition, partition_log: Log, is_wanted: Callable[[], bool]) -> str:
        buffer_bytes = self.config.transaction_state_log_load_buffer_size
        owned.transactions = load_transactions(partition_log, buffer_bytes, is_wanted)
        return f"{len(owned.transactions)} transactional ids"

    def _partition_started(self, owned: TransactionsPartition) -> None:
        self._spawn(self._resume(owned))

    async def _resume(self, owned: TransactionsPartition) -> None:
        """Carry out what the coordinator before us has decided."""
        async for transaction in self._each(owned):
            # One that was prepared since we began to look has its markers on their way.
            if transaction.transactional_id not in owned.endings:
                try:
                    self._carry_out(owned, transaction, transaction.resume())
                except Exception:  # the others go on
                    log.exception("transaction %s is not carried out", transaction.transactional_id)

    def _partition_resigned(self, owned: TransactionsPartition) -> None:
        for ending in owned.endings.values():
            ending.is_over = True
        for transaction in owned.transactions.values():
            if transaction.is_pending:
                self._carry_out(owned, transaction, transaction.resign())
        self._waiting.call_all_in()

    # --- finding a transactional id ---------------------------------------------------------------------------

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of __transaction_state that holds the id."""
        return self._owned.partition_for(transactional_id)

    def _find(self, transactional_id: str) -> tuple[TransactionsPartition, Transaction | None]:
        """Return where the id is, or would be; raises KafkaError when that cannot be said here."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A transactional id must not be empty.")
        owned, error = self._owned.find(transactional_id)
        if owned is None:
            raise KafkaError(error)
        return owned, owned.transactions.get(transactional_id)

    def _find_known(self, transactional_id: str) -> tuple[TransactionsPartition, Transaction]:
        owned, transaction = self._find(transactional_id)
        if transaction is None:
            text = "The producer attempted to use a producer id which is not assigned to its transactional id."
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
        return owned, transaction

    def _is_busy(self, transactional_id: str) -> bool:
        """Whether who is answered CONCURRENT_TRANSACTIONS may as well wait for what is being written."""
        owned, _ = self._owned.find(transactional_id)
        transaction = None if owned is None else owned.transactions.get(transactional_id)
        return transaction is not None and transaction.is_busy

    # --- requests ---------------------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> Awaitable[Answer]:
        """InitProducerId; `expected` is the (id, epoch) of a producer that goes on. Raises KafkaError."""
        return self._waiting.ask(transactional_id, lambda: self._init(transactional_id, timeout_ms, expected))

    async def _init(self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None) -> Answer:
        owned, transaction = self._find(transactional_id)
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            text = f"A transaction may take {self.config.transaction_max_timeout_ms} ms at most, and must take some."
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, text)
        fresh = -1
        while fresh < 0 and (transaction is None or transaction.needs_producer_id(expected)):
            fresh = await self._producer_ids.next_id()
            owned, transaction = self._find(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, TransactionRecord(fresh, NO_EPOCH, timeout_ms))
            owned.transactions[transactional_id] = transaction
        return await self._answer(
            owned,
            transaction,
            lambda request: transaction.init(
                expected, timeout_ms, request, self._clock(), fresh, self._features.transaction_version
            ),
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Key],
        version: int = 0,
        may_wait: bool = True,
    ) -> Awaitable[Answer]:
        """AddPartitionsToTxn, AddOffsetsToTxn: the same error for all partitions. Raises KafkaError.

        `version`: the transaction.version by which the transaction goes; `may_wait`: for the end of the one before.
        """

        def add() -> asyncio.Future[Answer]:
            owned, transaction = self._find_known(transactional_id)
            producer = producer_id, producer_epoch
            return self._answer(
                owned,
                transaction,
                lambda request: transaction.add_partitions(*producer, partitions, request, self._clock(), version),
            )

        return self._waiting.ask(transactional_id, add) if may_wait else add()

    def add_by_produce(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Key],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Let partitions that this broker leads take part in a transaction; `done` gets how that went."""
        try:
            answer = self.add_partitions(transactional_id, producer_id, producer_epoch, partitions, EPOCH_EACH)
        except KafkaError as error:
            done(error.code)
            return
        if isinstance(answer, asyncio.Future) and answer.done():
            done(answer.result().error)
        else:
            # Not by a task that awaits it: one that is cancelled before its first step would tell nobody.
            self._spawn(answer).add_done_callback(lambda answered: done(_error_of(answered)))

    def end(self, transactional_id: str, producer_id: int, producer_epoch: int, is_commit: bool) -> Awaitable[Answer]:
        """EndTxn: answered when the decision is in the log. Raises KafkaError."""

        def end() -> asyncio.Future[Answer]:
            owned, transaction = self._find_known(transactional_id)
            return self._answer(
                owned,
                transaction,
                lambda request: transaction.end(producer_id, producer_epoch, is_commit, request, self._clock()),
            )

        return self._waiting.ask(transactional_id, end)

    def end_each(
        self, transactional_id: str, producer_id: int, producer_epoch: int, is_commit: bool
    ) -> Awaitable[Answer]:
        """EndTxn of a transaction with an epoch of its own: the answer has the next one. Raises KafkaError."""
        producer = producer_id, producer_epoch

        def end() -> Awaitable[Answer]:
            _, transaction = self._find_known(transactional_id)
            if transaction.needs_producer_id_after(*producer, is_commit):
                return self._end_the_last(transactional_id, producer, is_commit)
            return self._end_each(transactional_id, producer, is_commit)

        return self._waiting.ask(transactional_id, end)

    async def _end_the_last(self, transactional_id: str, producer: tuple[int, int], is_commit: bool) -> Answer:
        """End the transaction with the last epoch of a producer id: the producer goes on with another."""
        return await self._end_each(transactional_id, producer, is_commit, await self._producer_ids.next_id())

    def _end_each(
        self, transactional_id: str, producer: tuple[int, int], is_commit: bool, fresh: int = NO_PRODUCER_ID
    ) -> asyncio.Future[Answer]:
        owned, transaction = self._find_known(transactional_id)
        return self._answer(
            owned,
            transaction,
            lambda request: transaction.end_each(*producer, is_commit, request, self._clock(), fresh),
        )

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[Key]
    ) -> dict[Key, ErrorCode]:
        """Tell for each partition whether the producer may write to it in its transaction (KIP-890)."""
        try:
            _, transaction = self._find_known(transactional_id)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return transaction.verify(producer_id, producer_epoch, partitions)

    def partitions_of(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Container[Key]:
        """Return the partitions that are part of the transaction at this moment: of which `verify` would say so."""
        try:
            _, transaction = self._find_known(transactional_id)
        except KafkaError:
            return ()
        return transaction.partitions_of(producer_id, producer_epoch)

    def describe(self, transactional_id: str) -> TransactionRecord:
        """Return what is known of an id; raises KafkaError."""
        _, transaction = self._find(transactional_id)
        if transaction is None or transaction.state is DEAD:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"Transactional id {transactional_id} is unknown.")
        return transaction.record

    def transactions(self) -> list[Transaction]:
        """Return all that are here; raises KafkaError 14 while some are still being read, 15 when this is stopped."""
        if not self._owned.is_active:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._owned.is_loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return [transaction for owned in self._owned.by_number.values() for transaction in owned.transactions.values()]

    @property
    def parked_markers(self) -> int:
        """Markers that wait for another attempt."""
        return self._markers.parked

    # --- time -------------------------------------------------------------------------------------------------

    async def abort_timed_out_transactions(self) -> None:
        """Abort the transactions that have taken longer than their producers said."""
        for owned in list(self._owned.by_number.values()):
            async for transaction in self._each(owned):
                if transaction.is_too_long(self._clock()):
                    log.info("transaction %s has taken too long and is aborted", transaction.transactional_id)
                    self._carry_out(
                        owned, transaction, transaction.time_out(self._clock(), self._features.transaction_version)
                    )

    async def expire_transactional_ids(self) -> None:
        """Forget the ids that nobody has used for long."""
        expiration_ms = self.config.transactional_id_expiration_ms
        for owned in list(self._owned.by_number.values()):
            async for transaction in self._each(owned):
                self._carry_out(owned, transaction, transaction.expire(self._clock(), expiration_ms))

    async def _each(self, owned: TransactionsPartition) -> AsyncIterator[Transaction]:
        """Yield what the partition holds as long as it is ours; now and then everybody else gets their turn."""
        if owned.is_loading:
            return
        turn = Turn()
        for transaction in list(owned.transactions.values()):
            yield transaction
            await turn.end_if_over()
            if not self._owned.is_current(owned):
                return

    # --- what transactions ask for ----------------------------------------------------------------------------

    def _answer(
        self,
        owned: TransactionsPartition,
        transaction: Transaction,
        event: Callable[[asyncio.Future[Answer]], list[Instruction]],
    ) -> asyncio.Future[Answer]:
        """Return the answer to a request, now or when what it needs is written."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._carry_out(owned, transaction, event(future))
        return future

    def _carry_out(
        self, owned: TransactionsPartition, transaction: Transaction, instructions: Sequence[Instruction]
    ) -> None:
        for instruction in instructions:
            if isinstance(instruction, Answer):
                future: Any = instruction.request
                if not future.done():
                    future.set_result(instruction)
            elif isinstance(instruction, SendMarkers):
                self._send_markers(owned, transaction, instruction.record)
            elif instruction.is_again:
                asyncio.get_running_loop().call_later(APPEND_AGAIN_S, self._write, owned, transaction, instruction)
            else:
                self._write(owned, transaction, instruction)

    def _write(self, owned: TransactionsPartition, transaction: Transaction, write: Write) -> None:
        if not self._owned.is_current(owned):
            return
        record = write.record

        def done(error: ErrorCode, offset: int) -> None:
            if not self._owned.is_current(owned):
                return  # whoever waited was answered when the partition was given up
            if error is not ErrorCode.NONE:
                log.warning("transaction %s: a record was not written: %s", transaction.transactional_id, error.name)
            self._carry_out(owned, transaction, transaction.written(transaction_error(error)))
            if transaction.is_new or transaction.state is DEAD:
                owned.transactions.pop(transaction.transactional_id, None)
            if not transaction.is_busy:
                self._waiting.call_in(transaction.transactional_id)

        key = transaction_key(transaction.transactional_id)
        if record is None:
            owned.log.append([(key, None)], done)
        elif record.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
            # Nobody is answered by it; and a follower's fetch that tells of the last marker has read this partition by
            # now, and does not wait for it yet: in the middle of that fetch it would be heard of only with the next.
            owned.log.append([(key, transaction_value(record))], done, record.timeout_ms)
        else:
            owned.log.append_at_once([(key, transaction_value(record))], done, record.timeout_ms)

    def _send_markers(self, owned: TransactionsPartition, transaction: Transaction, record: TransactionRecord) -> None:
        transactional_id = transaction.transactional_id

        def done() -> None:
            owned.endings.pop(transactional_id, None)
            if self._owned.is_current(owned):
                self._carry_out(owned, transaction, transaction.markers_written(self._clock()))

        ending = owned.endings[transactional_id] = Ending(
            transactional_id,
            record.producer_id,
            record.producer_epoch,
            record.state is PREPARE_COMMIT,
            owned.leader_epoch,
            owned.since,
            set(record.partitions),
            done,
            record.client_version,
        )
        asyncio.get_running_loop().call_soon(self._markers.send, ending)  # the answer to the EndTxn goes out first


def _error_of(answered: asyncio.Future[Answer]) -> ErrorCode:
    if answered.cancelled():  # this coordinator stops
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    failure = answered.exception()
    if failure is None:
        return answered.result().error
    if isinstance(failure, KafkaError):
        return failure.code
    log.error("a request to a transaction failed", exc_info=failure)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE


async def _regularly(interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await work()
        except Exception:
            log.exception("the regular look at the transactions failed; it is tried again later")

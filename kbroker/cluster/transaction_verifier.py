"""Asks the coordinators of transactions whether partitions are part of them, before anything is appended (KIP-890).

    verify(transaction, partitions, done)  --coordinator here-->   done(errors)                          at once
                                           --another broker-->     AddPartitionsToTxn, VerifyOnly  -->   done(errors)

One request at a time is on its way to a broker; what is asked meanwhile goes with the next one, one question for each
transactional id. Who asks again before the first question has gone out is trying again: the first comes to nothing.

Partitions may also be added by the asking (part 2 of KIP-890, with an epoch for each transaction): then both questions
go as one. A producer that begins its next transaction at once finds the markers of the last one still being written: it
is asked again here for a while, which takes less than telling the client to come again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kbroker.client.connection import Connection
from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.cluster.setup_timeout import ConnectionSetup, SetupTimeout
from kbroker.cluster.topic_names import TRANSACTIONS_TOPIC
from kbroker.protocol.apis import api_of
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key, by_topic
from kbroker.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

log = logging.getLogger(__name__)

FIRST_VERIFYING_VERSION = 4
CONCURRENT_S, CONCURRENT_PAUSE_S = 0.1, 0.005
"""How long, and how often, to ask again while the transaction before is being ended: markers take some milliseconds."""

Errors = Mapping[Key, ErrorCode]
"""Why partitions could not be verified; the others are part of the transaction."""
Done = Callable[[Errors], None]


class Transaction(NamedTuple):
    """Whose transaction it is."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Here(Protocol):
    """The coordinator in this broker: transactional id, producer id and epoch, and partitions, are given to it."""

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[Key]
    ) -> Mapping[Key, ErrorCode]:
        """Tell for each partition whether it is part of the transaction."""

    def partitions_of(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Container[Key]:
        """Return the partitions that are part of the transaction, if `verify` would say so."""

    def add_by_produce(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Key],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Make all of them part of the transaction; `done` gets how that went."""


@dataclass(slots=True)
class _Question:
    transaction: Transaction
    partitions: Sequence[Key]
    done: Done
    adds: bool = False

    def fail(self, error: ErrorCode) -> None:
        self.done(dict.fromkeys(self.partitions, error))

    def joined(self, other: _Question) -> _Question:
        """Both as one."""

        def done(errors: Errors) -> None:
            self.done(errors)
            other.done(errors)

        return _Question(
            self.transaction, list({**dict.fromkeys(self.partitions), **dict.fromkeys(other.partitions)}), done, True
        )


class TransactionVerifier:
    """Lines to all coordinators. `here` answers for this broker's own, once there is one."""

    def __init__(
        self,
        metadata: MetadataCache,
        broker_id: int,
        listener: str,
        partition_for: Callable[[str], int],
        request_timeout_ms: int = 30_000,
        connections: ConnectionSetup | None = None,
    ) -> None:
        """`partition_for(transactional id)` tells which partition of __transaction_state holds it."""
        self.here: Here | None = None
        self._metadata = metadata
        self._broker_id = broker_id
        self._listener = listener
        self._partition_for = partition_for
        self._timeout_s = request_timeout_ms / 1000
        self.connections = connections or ConnectionSetup()
        self._lines: dict[int, _Line] = {}
        self._is_closed = False

    def verify(self, transaction: Transaction, partitions: Sequence[Key], done: Done, adds: bool = False) -> None:
        """Call `done` with the partitions that are not part of the transaction, or about which nothing is known.

        `adds`: they are to be part of it from now on.
        """
        question = _Question(transaction, partitions, done, adds)
        if adds:
            question.done = self._again_while_concurrent(question, done)
        self._ask(question)

    def known_here(self, transaction: Transaction) -> Container[Key]:
        """The partitions that are part of it at this moment, by the coordinator in this broker; none if elsewhere."""
        if self.here is None or self._is_closed:
            return ()
        if self._coordinator_of(transaction.transactional_id) != self._broker_id:
            return ()
        return self.here.partitions_of(*transaction)

    def _again_while_concurrent(self, question: _Question, done: Done) -> Done:
        """Return what asks again while the transaction before is being ended."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + CONCURRENT_S

        def answered(errors: Errors) -> None:
            is_concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if is_concurrent and loop.time() < give_up_at and not self._is_closed:
                loop.call_later(CONCURRENT_PAUSE_S, self._ask, question)
            else:
                done(errors)

        return answered

    def _ask(self, question: _Question) -> None:
        if self._is_closed:
            question.fail(ErrorCode.NETWORK_EXCEPTION)
            return
        transaction, partitions = question.transaction, question.partitions
        coordinator = self._coordinator_of(transaction.transactional_id)
        if coordinator == self._broker_id and self.here is not None:
            if question.adds:
                self.here.add_by_produce(*transaction, partitions, lambda error: question.done(_all(partitions, error)))
            else:
                question.done(_refusals(self.here.verify(*transaction, partitions), partitions))
        elif coordinator is None or self._address(coordinator) is None:
            question.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            line = self._lines.get(coordinator)
            if line is None:
                line = self._lines[coordinator] = _Line(self, coordinator)
            line.ask(question)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        found = self._metadata.partition(TRANSACTIONS_TOPIC, self._partition_for(transactional_id))
        return None if found is None else found.leader

    def _address(self, broker_id: int) -> tuple[str, int] | None:
        return self._metadata.endpoint(broker_id, self._listener)

    def while_reached(self, broker_id: int) -> AbstractAsyncContextManager[None]:
        """What a broker is asked in here is given up once it is gone: another coordinates then."""
        return self._metadata.while_reached(broker_id, self._listener)

    async def connect(self, broker_id: int, setup: SetupTimeout) -> Connection:
        """Open a connection and ask for its versions; raises OSError or KafkaError."""
        address = self._address(broker_id)
        if address is None:
            raise OSError(f"broker {broker_id} has gone")
        connection = await setup.connect(address, client_id=f"broker-{self._broker_id}-transaction-verifier")
        try:
            await connection.negotiate(self._timeout_s)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def close(self) -> None:
        """Ask nothing more; whoever waits is told that nothing is known."""
        self._is_closed = True
        lines, self._lines = self._lines, {}
        for line in lines.values():
            await line.close()


class _Line:
    """To one broker."""

    def __init__(self, verifier: TransactionVerifier, broker_id: int) -> None:
        self._verifier = verifier
        self._broker_id = broker_id
        self._setup = verifier.connections.of_peer()
        self._waiting: dict[str, _Question] = {}
        """By transactional id."""
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    def ask(self, question: _Question) -> None:
        """Send it with the next request."""
        transactional_id = question.transaction.transactional_id
        before = self._waiting.get(transactional_id)
        if before is not None:
            # Epochs of different producer ids say nothing about each other.
            is_same_id = before.transaction.producer_id == question.transaction.producer_id
            newer = question.transaction.producer_epoch - before.transaction.producer_epoch if is_same_id else 0
            if newer < 0:
                question.fail(ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            del self._waiting[transactional_id]
            if before.transaction == question.transaction and before.adds and question.adds:
                question = before.joined(question)
            else:
                before.fail(ErrorCode.INVALID_PRODUCER_EPOCH if newer else ErrorCode.NETWORK_EXCEPTION)
        self._waiting[transactional_id] = question
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"verify-transactions-at-{self._broker_id}")

    async def _run(self) -> None:
        """Ask until nothing waits any more."""
        await asyncio.sleep(0)  # what else comes in this turn goes with it
        while self._waiting:
            questions, self._waiting = list(self._waiting.values()), {}
            try:
                answers = await self._exchange(questions)
            except BaseException as error:
                self._abort()
                for question in questions:
                    question.fail(ErrorCode.NETWORK_EXCEPTION)
                if not isinstance(error, Exception):
                    raise
                unexpected = None if isinstance(error, OSError | KafkaError) else error
                log.warning("broker %d did not verify transactions: %s", self._broker_id, error, exc_info=unexpected)
                continue
            for question, errors in zip(questions, answers, strict=True):
                question.done(errors)
        self._task = None

    async def _exchange(self, questions: Sequence[_Question]) -> list[Errors]:
        async with self._verifier.while_reached(self._broker_id):
            return await self._ask(questions)

    async def _ask(self, questions: Sequence[_Question]) -> list[Errors]:
        if self._connection is None or self._connection.is_closed:
            self._connection = await self._verifier.connect(self._broker_id, self._setup)
        api = api_of(AddPartitionsToTxnRequest)
        version = min(api.max_version, self._connection.versions.get(api.key, (0, 0))[1])
        if version < FIRST_VERIFYING_VERSION:
            log.debug("broker %d is too old to verify transactions: they are taken as they are", self._broker_id)
            # None of these would be added: brokers like that are in no cluster whose transactions go that way.
            lacking = ErrorCode.UNSUPPORTED_VERSION
            return [_all(question.partitions, lacking) if question.adds else {} for question in questions]
        timeout_s = self._verifier._timeout_s
        answer = await self._connection.request(_request(questions), version, timeout=timeout_s)
        return _answers(questions, answer)

    def _abort(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for question in self._waiting.values():
            question.fail(ErrorCode.NETWORK_EXCEPTION)
        self._waiting.clear()
        self._abort()


def _all(partitions: Sequence[Key], error: ErrorCode) -> Errors:
    """The same is to be told of all partitions."""
    return _refusals(dict.fromkeys(partitions, error), partitions)


def _request(questions: Sequence[_Question]) -> AddPartitionsToTxnRequest:
    transactions = []
    for question in questions:
        transactions.append(
            AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=question.transaction.transactional_id,
                producer_id=question.transaction.producer_id,
                producer_epoch=question.transaction.producer_epoch,
                verify_only=not question.adds,
                topics=[
                    AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=partitions)
                    for name, partitions in by_topic(question.partitions).items()
                ],
            )
        )
    return AddPartitionsToTxnRequest(transactions=transactions)


def _answers(questions: Sequence[_Question], answer: AddPartitionsToTxnResponse) -> list[Errors]:
    error = answer.error_code
    if error is not ErrorCode.NONE:
        log.error("a coordinator does not verify transactions: %s", error.name)
        if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # of this broker: no client's business
            error = ErrorCode.INVALID_TXN_STATE
        return [dict.fromkeys(question.partitions, error) for question in questions]
    results: dict[str, dict[Key, ErrorCode]] = {
        result.transactional_id: {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in answer.results_by_transaction
    }
    return [
        _refusals(results.get(question.transaction.transactional_id, {}), question.partitions) for question in questions
    ]


def _refusals(said: Mapping[Key, ErrorCode], partitions: Sequence[Key]) -> Errors:
    """What is to be told of the partitions that are not part of the transaction; of which nothing is said is none."""
    found: dict[Key, Any] = {}
    for key in partitions:
        error = said.get(key, ErrorCode.INVALID_TXN_STATE)
        if error is ErrorCode.PRODUCER_FENCED:  # what producers understand
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        if error is not ErrorCode.NONE:
            found[key] = error
    return found

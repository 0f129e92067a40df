"""Transactions as others than their producers see them, asked without an event loop: taken over, found, ended.

    transactions = PlainTransactions(cluster)
    owner = transactions.take("etl-1", timeout_ms)          whoever had it is fenced off, what was open is aborted
    transactions.write(owner, ("ledger", 3), b"key", b"value", sequence=0)
    transactions.end([owner], commit=True)                  {owner: Ended(ErrorCode.NONE, owner)}
    transactions.open_ones("etl-")                          ["etl-7"]
    transactions.states([owner])                            {owner: "CompleteCommit"}

Who knows a transactional id with its producer id and epoch may end the transaction: it need not be who wrote it. Where
the cluster has transaction.version 2, each transaction has an epoch of its own (KIP-890): then who owns it after an end
is another, and who ends the same transaction again, as the former owner, is told how it ended.
Not for several threads at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kbroker.client.errors import TimedOut, error_for
from kbroker.client.plain_cluster import TRANSACTION, PlainCluster
from kbroker.client.transaction_requests import (
    EPOCH_EACH,
    NEWEST_ADD_PARTITIONS,
    NEWEST_END,
    NEWEST_PRODUCE,
    TRANSACTION_VERSION,
)
from kbroker.protocol.errors import COORDINATOR_MOVED, ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    ListTransactionsRequest,
)
from kbroker.protocol.records.builder import BatchBuilder

if TYPE_CHECKING:
    from kbroker.client.plain_connection import PlainConnection
    from kbroker.protocol.schema import Message

PAUSE_S = 0.005
"""The markers of a transaction that was just ended are usually written within so long."""
LONGEST_PAUSE_S = 0.5
TRIES = 3
"""So often a question that is not answered is asked, each time somebody else perhaps, before the patience is over."""
AT_ONCE = 100
"""Requests that are sent ahead of their answers."""
ONGOING = "Ongoing"
FIRST_WITH_FEATURES = 3
"""Of ApiVersions."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who may end a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of the end of a transaction, and who its owner is from then on."""

    error: ErrorCode
    owner: Owner


class PlainTransactions:
    """Asks again for as long as its cluster does, while coordinators move, load or write markers."""

    def __init__(self, cluster: PlainCluster) -> None:
        self._cluster = cluster
        self._coordinators: dict[str, PlainConnection] = {}
        self._epoch_each: bool | None = None
        """Whether each transaction has an epoch of its own; None while nobody was asked."""

    def take(self, transactional_id: str, timeout_ms: int) -> Owner:
        """Become the owner; `timeout_ms` is how long its transactions may be open from now on."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

        def ask() -> Owner:
            answer = self._coordinator(transactional_id).request(request, timeout=self._limit)
            self._raise_for(answer.error_code, transactional_id)
            return Owner(transactional_id, answer.producer_id, answer.producer_epoch)

        return self._persist(ask, [transactional_id])

    def write(self, owner: Owner, place: Key, key: bytes, value: bytes | None, sequence: int) -> None:
        """Write a record in the owner's transaction, which begins where none is open; `sequence` counts per epoch."""
        if not self._persist(lambda: self._has_epoch_each(owner), [owner.transactional_id]):
            self._persist(lambda: self._add(owner, place), [owner.transactional_id])
        builder = BatchBuilder()
        builder.append(key, value, (), time.time_ns() // 1_000_000)
        batch = builder.build(owner.producer_id, owner.epoch, sequence, transactional=True)
        self._persist(lambda: self._produce(owner, place, batch), [])

    def _has_epoch_each(self, owner: Owner) -> bool:
        if self._epoch_each is None:
            connection = self._coordinator(owner.transactional_id)
            version = connection.version_for(ApiVersionsRequest)
            self._epoch_each = False
            if version >= FIRST_WITH_FEATURES:
                request = ApiVersionsRequest(client_software_name="kbroker", client_software_version="1")
                features = connection.request(request, version, self._limit).finalized_features
                levels = {each.name: each.max_version_level for each in features}
                self._epoch_each = levels.get(TRANSACTION_VERSION, 0) >= EPOCH_EACH
        return self._epoch_each

    def _add(self, owner: Owner, place: Key) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=owner.transactional_id,
            v3_and_below_producer_id=owner.producer_id,
            v3_and_below_producer_epoch=owner.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])
            ],
        )
        connection = self._coordinator(owner.transactional_id)
        version = connection.version_for(AddPartitionsToTxnRequest, NEWEST_ADD_PARTITIONS)
        for topic in connection.request(request, version, self._limit).results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                self._raise_for(result.partition_error_code, owner.transactional_id)

    def _produce(self, owner: Owner, place: Key, batch: bytearray) -> None:
        data = ProduceRequest.PartitionProduceData(index=place[1], records=batch)
        request = ProduceRequest(
            transactional_id=owner.transactional_id,
            acks=-1,
            timeout_ms=int(self._limit * 900),  # a tenth less: what is not replicated is told in time
            topic_data=[ProduceRequest.TopicProduceData(name=place[0], partition_data=[data])],
        )
        try:
            connection = self._cluster.connection_for(place)
            version = connection.version_for(ProduceRequest, None if self._epoch_each else NEWEST_PRODUCE)
            answer = connection.request(request, version, self._limit)
            result = answer.responses[0].partition_responses[0]
            if result.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                raise error_for(result.error_code, result.error_message, topic=place[0], partition=place[1])
        except (KafkaError, OSError):
            self._cluster.forget(place)
            raise

    def end(self, owners: Sequence[Owner], *, commit: bool) -> dict[Owner, Ended]:
        """End transactions; no error also where one had ended so before, else the reason that will not pass."""
        outcomes: dict[Owner, Ended] = {}

        def ask() -> dict[Owner, Ended]:
            highest = None if owners and self._has_epoch_each(owners[0]) else NEWEST_END
            left = [owner for owner in owners if owner not in outcomes]
            requests = [(owner, _end(owner, commit)) for owner in left]
            passing = ErrorCode.NONE
            for owner, answer in self._ask_each(requests, highest):
                if answer.error_code.retriable:
                    passing = answer.error_code
                else:
                    outcomes[owner] = Ended(answer.error_code, _owner_after(owner, answer))
            self._raise_for(passing, f"{len(owners) - len(outcomes)} transactions")
            return outcomes

        return self._persist(ask, [owner.transactional_id for owner in owners])

    def states(self, owners: Sequence[Owner]) -> dict[Owner, str]:
        """Return each transaction's state; empty where it is another owner's, or nobody's."""

        def ask() -> dict[Owner, str]:
            questions = [(theirs[0], _describe(theirs)) for theirs in self._by_coordinator(owners)]
            found: dict[str, DescribeTransactionsResponse.TransactionState] = {}
            for _, answer in self._ask_each(questions):
                found |= {each.transactional_id: each for each in answer.transaction_states}
            return {owner: self._state(owner, found.get(owner.transactional_id)) for owner in owners}

        return self._persist(ask, [owner.transactional_id for owner in owners])

    def _by_coordinator(self, owners: Sequence[Owner]) -> Iterable[list[Owner]]:
        self._find({owner.transactional_id for owner in owners})
        found: dict[PlainConnection, list[Owner]] = {}
        for owner in owners:
            found.setdefault(self._coordinator(owner.transactional_id), []).append(owner)
        return found.values()

    def _state(self, owner: Owner, found: DescribeTransactionsResponse.TransactionState | None) -> str:
        if found is None:
            text = f"the answer of its coordinator says nothing of transactional id {owner.transactional_id}"
            raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, text)
        if found.error_code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return ""
        self._raise_for(found.error_code, owner.transactional_id)
        is_theirs = (found.producer_id, found.producer_epoch) == (owner.producer_id, owner.epoch)
        return str(found.transaction_state) if is_theirs else ""

    def open_ones(self, prefix: str) -> list[str]:
        """Return the transactional ids that begin so and whose transactions are open, on all brokers."""
        request = ListTransactionsRequest(state_filters=[ONGOING], producer_id_filters=[])

        def ask() -> list[str]:
            found = []
            for broker in self._cluster.broker_ids():
                answer = self._cluster.connection(broker).request(request, timeout=self._limit)
                self._raise_for(answer.error_code, f"the transactions of broker {broker}")
                found += [each.transactional_id for each in answer.transaction_states]
            return sorted(each for each in found if each.startswith(prefix))

        return self._persist(ask, [])

    def _ask_each(
        self, requests: Sequence[tuple[Owner, Message]], highest: int | None = None
    ) -> Iterable[tuple[Owner, Any]]:
        """Ask each owner's coordinator, some questions ahead of the answers: these go out together, so that kbroker
        writes what they ask for together, too.
        """
        self._find({owner.transactional_id for owner, _ in requests})
        for first in range(0, len(requests), AT_ONCE):
            some = [
                (owner, self._coordinator(owner.transactional_id), each) for owner, each in requests[first:][:AT_ONCE]
            ]
            together: dict[PlainConnection, list[Message]] = {}
            for _, connection, request in some:
                together.setdefault(connection, []).append(request)
            try:
                for connection, of_it in together.items():
                    connection.send(*of_it, version=connection.version_for(type(of_it[0]), highest))
                answers = [connection.receive(self._limit) for _, connection, _ in some]
            except BaseException:
                for _, connection, _ in some:
                    connection.close()  # nobody waits for what is on its way there
                raise
            yield from zip((owner for owner, _, _ in some), answers, strict=True)

    @property
    def _limit(self) -> float:
        """Seconds that one answer may take."""
        return min(self._cluster.config.request_timeout_ms / 1000, self._cluster.retry_for / TRIES)

    def _coordinator(self, transactional_id: str) -> PlainConnection:
        self._find({transactional_id})
        return self._coordinators[transactional_id]

    def _find(self, ids: set[str]) -> None:
        """Learn the coordinators of those whose are not known, or not connected any more."""
        known = self._coordinators
        unknown = sorted(each for each in ids if each not in known or not known[each].is_open)
        if unknown:
            known |= self._cluster.coordinators(unknown, TRANSACTION)

    def _persist(self, ask: Callable[[], Answer], ids: Iterable[str]) -> Answer:
        """Ask until there is an answer, or an error that will not pass; asks anew who coordinates the ids."""
        deadline, pause = time.monotonic() + self._cluster.retry_for, PAUSE_S
        while True:
            try:
                return ask()
            except (KafkaError, OSError) as error:
                if isinstance(error, KafkaError) and not error.code.retriable:
                    raise
                if time.monotonic() + pause > deadline:
                    raise TimedOut(f"no answer within {self._cluster.retry_for:g} s: {error}") from error
                if isinstance(error, OSError) or error.code in COORDINATOR_MOVED:
                    for each in ids:
                        self._coordinators.pop(each, None)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    @staticmethod
    def _raise_for(code: ErrorCode, what: str) -> None:
        if code is not ErrorCode.NONE:
            raise error_for(code, what)


def _owner_after(owner: Owner, answer: EndTxnResponse) -> Owner:
    """Return who goes on after an end: another only where it brought an epoch."""
    if answer.error_code is not ErrorCode.NONE or answer.producer_id < 0:
        return owner
    return Owner(owner.transactional_id, answer.producer_id, answer.producer_epoch)


def _end(owner: Owner, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=owner.transactional_id,
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        committed=commit,
    )


def _describe(owners: Sequence[Owner]) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=[owner.transactional_id for owner in owners])

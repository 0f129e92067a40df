"""The transaction that a Produce request's batches are part of: which of its partitions have to be verified first, or
added, where the request does that (KIP-890, part 2).

    add(partition) … add(partition), ask()  -->  the coordinator  -->  each partition's `then(refusal or None)`
    look(), partition in known                   the coordinator in this broker says so, now

What cannot be verified for now is answered NOT_ENOUGH_REPLICAS: every client tries that again, and none looks for new
leaders because of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Generator, Sequence
from typing import Protocol

from kbroker.cluster.transaction_verifier import Done, Errors, Transaction
from kbroker.protocol.errors import COORDINATOR_MOVED, ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.replica.turns import in_turns, portions

MOST_AT_ONCE = 100
"""Batches of one request that are appended in one go, at once or when verified: that takes a few milliseconds."""
APPENDED_AT_ONCE = 10

PASSING = COORDINATOR_MOVED | frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)

NOT_HEARD_OF = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""What a coordinator says that has yet to hear of a partition it is to add; and of those that were asked with it."""

Then = Callable[[KafkaError | None], None]


class Verifier(Protocol):
    """What is asked of the TransactionVerifier."""

    def verify(self, transaction: Transaction, partitions: list[Key], done: Done, adds: bool = False) -> None:
        """Call `done` with the partitions that are not part of the transaction; `adds`: they are to be from now on."""

    def known_here(self, transaction: Transaction) -> Container[Key]:
        """The partitions that are part of it at this moment, by the coordinator in this broker; none if elsewhere."""


class ProducedTransaction:
    """One request's."""

    __slots__ = ("_knows_abortable", "_telling", "_verifier", "_waiting", "adds", "known", "then", "transaction")

    def __init__(self, verifier: Verifier, transaction: Transaction, knows_abortable: bool, adds: bool = False) -> None:
        """`knows_abortable`: whether the client has heard of TRANSACTION_ABORTABLE."""
        self.transaction = transaction
        self.adds = adds
        """Whether partitions take part in the transaction by being produced to."""
        self.known: Container[Key] = ()
        """Partitions that need not be asked for in this turn of the loop."""
        self._verifier = verifier
        self._knows_abortable = knows_abortable
        self._waiting: list[tuple[Key, Then]] = []
        self.then: Callable[[], object] | None = None
        """Called when all partitions have been told."""
        self._telling: asyncio.Future[None] | None = None

    def look(self) -> None:
        """See what is known in this turn of the loop."""
        if not self.adds:
            self.known = self._verifier.known_here(self.transaction)

    def add(self, key: Key, then: Then) -> None:
        """Verify this partition, too."""
        self._waiting.append((key, then))

    def ask(self) -> None:
        """All partitions have been added."""
        if self._waiting:
            keys = list(dict.fromkeys(key for key, _ in self._waiting))
            self._verifier.verify(self.transaction, keys, self._answered, self.adds)

    def _answered(self, errors: Errors) -> None:
        waiting, self._waiting = self._waiting, []
        if len(waiting) <= MOST_AT_ONCE:
            self._tell(waiting, errors)
            self._told()
            return
        rest = in_turns(self._tell_in_turns(waiting, errors))
        if rest is not None:
            self._telling = asyncio.ensure_future(rest)

    def _tell_in_turns(self, waiting: Sequence[tuple[Key, Then]], errors: Errors) -> Generator[None, None, None]:
        for portion in portions(waiting, APPENDED_AT_ONCE):
            self._tell(portion, errors)
            yield
        self._told()

    def _tell(self, waiting: Sequence[tuple[Key, Then]], errors: Errors) -> None:
        for key, then in waiting:
            then(self._refusal(errors.get(key, ErrorCode.NONE)))

    def _told(self) -> None:
        if self.then is not None:
            self.then()

    def _refusal(self, error: ErrorCode) -> KafkaError | None:
        if error is ErrorCode.NONE:
            return None
        if self.adds and error is ErrorCode.CONCURRENT_TRANSACTIONS:
            return KafkaError(error, "the transaction before is still being ended")
        if error in PASSING or (self.adds and error in NOT_HEARD_OF):
            text = f"the transaction could not be verified: {error.name}"
            return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
        error = spoken(error, self._knows_abortable)
        if error is ErrorCode.INVALID_TXN_STATE:
            return KafkaError(error, "the partition was not added to the transaction")
        return KafkaError(error)


def spoken(error: ErrorCode, knows_abortable: bool) -> ErrorCode:
    """Return the error as the client knows it."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error

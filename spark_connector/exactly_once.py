"""The driver's side of writes that happen once: takes over, decides a batch, ends its tasks' transactions.

    begin    fence the driver before, finish what it decided, abort what else it left open      -> Term, for the tasks
    commit   write the decision, one record in the ledger, in a transaction of the driver's own;
             then commit the tasks' transactions, abort those of attempts that lost, write that it is done
    abort    make sure that nothing was decided, then abort the tasks' transactions

Whoever dies in between leaves a ledger from which the next driver goes on: undecided means that nothing was written,
decided that everything is, now or when the next one begins. Spark makes the writer anew for each batch and once more
for its commit, so the Term travels with the tasks' messages: a driver that was fenced off since cannot decide.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kbroker.client.errors import BrokerError, error_for
from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_transactions import ONGOING, Owner, PlainTransactions
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.java_hash import partition_for
from kbroker.spark_connector.ledger import Entry, LedgerError, Participant, lost, not_open, read_entry
from kbroker.spark_connector.ledger_topic import LedgerTopic
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.write_options import WriteOptions

log = logging.getLogger(__name__)

PREFIX = "kbroker-spark-"
"""Of all transactional ids."""
BATCH_WRITES = "batch writes"
BATCH_KEY = b"write\0"
"""Their entries are in one partition, so that the next of them finishes what one has left decided."""
DRIVER_TIMEOUT_MS = 15_000
"""Of the driver's own transactions: one record each."""
LONGEST = "transaction.max.timeout.ms"
TRANSACTIONS_TOPIC = "__transaction_state"
MOST_TRIES = 20
"""To place an id, for each partition there is: one in a billion is placed anywhere."""
FENCING = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@dataclass(frozen=True, slots=True)
class Term:
    """A driver's right to decide one batch, and what the tasks of that batch need to know."""

    name: str
    """Of the query: where its checkpoint is, if no option says another."""
    owner: Owner
    """The driver's own transactional id."""
    sequence: int
    """Of its next record in the ledger."""
    timeout_ms: int
    """Of the tasks' transactions."""
    driver: str = ""
    """Where it runs, for others to find it."""
    places: int = 0
    """Partitions of __transaction_state; 0 where nobody tells."""
    entry: Entry | None = None
    """The newest batch that was decided; done by now."""


class Driver:
    """One query's; see `driver_of`."""

    def __init__(self, cluster: PlainCluster, options: WriteOptions, name: str, *, streaming: bool) -> None:
        self._cluster = cluster
        self._streaming = streaming
        self._transactions = PlainTransactions(cluster)
        self._ledger = LedgerTopic(cluster, options.ledger)
        self._options = options
        self._name = name
        self._place = self._ledger.place_of(name if streaming else BATCH_WRITES)
        self._key = name.encode() if streaming else BATCH_KEY + name.encode()

    def begin(self) -> Term:
        """Take over from whoever was the query's driver before; raises LedgerError, OptionError."""
        self._ledger.ensure()
        longest = self._longest_ms()
        owner = self._transactions.take(driver_id(self._name), min(DRIVER_TIMEOUT_MS, longest))
        term = Term(self._name, owner, 0, longest, this_driver(), self._cluster.partition_count(TRANSACTIONS_TOPIC))
        term = self._begin_query(term) if self._streaming else self._begin_write(term)
        self._abort_others(prefix_of(self._name))
        return term

    def _begin_query(self, term: Term) -> Term:
        """Say who drives the query now; finish what was decided."""
        values = self._ledger.read(self._place)
        entry = self._entry(values)
        if values.get(self._driver_key) != term.driver.encode():
            log.info(
                "%s: its tasks' transactions may be open for %g s (%s)", self._name, term.timeout_ms / 1e3, LONGEST
            )
            term = self._write(term, self._driver_key, term.driver.encode())
        if entry is None or entry.is_done:
            return replace(term, entry=entry)
        log.warning("%s: batch %d was decided and is finished now", self._name, entry.batch)
        gone = self._commit_all(entry)
        wish, done = self._options.lost_batch, entry.done()
        if gone:
            problem = lost(entry, gone, f"{self._name} in {self._place[0]}-{self._place[1]}")
            if wish not in (f"{entry.batch} skip", f"{entry.batch} again"):
                raise problem
            log.error("exactlyOnceLostBatch=%s: %s", wish, problem)
            done = replace(done, batch=entry.batch - wish.endswith("again"))
        return replace(self._write(term, self._key, done.to_json()), entry=done)

    def _begin_write(self, term: Term) -> Term:
        """Finish what other writes have left decided: whoever comes across it does so, for nobody makes those again."""
        for key, value in self._ledger.read(self._place).items():
            if not key.startswith(BATCH_KEY):
                continue
            entry, name = read_entry(value), key.removeprefix(BATCH_KEY).decode()
            log.warning("the write %s was decided and is finished now", name)
            gone = self._commit_all(entry)
            if gone:
                log.error("%s", lost(entry, gone, name))
            term = self._write(term, key, None)
        return term

    def decide(self, term: Term, query: str, batch: int, participants: Sequence[Participant]) -> None:
        """Write a batch; raises LedgerError, BrokerError, OSError.

        After an error the batch is decided or not: `abort` finds out, or the next driver's `begin`.
        """
        states = self._transactions.states([each.owner for each in participants])
        if any(state != ONGOING for state in states.values()):
            if self._streaming and self._who_drives() != term.driver:
                raise self._fenced(batch)
            raise not_open(batch, participants, states, term.timeout_ms)
        entry = Entry(query, batch, term.driver, time.time_ns() // 1_000_000, tuple(participants))
        try:
            term = self._write(term, self._key, entry.to_json())
        except BrokerError as error:
            if error.code in FENCING and self._streaming and self._who_drives() != term.driver:
                raise self._fenced(batch) from error
            raise
        gone = self._commit_all(entry)
        if gone:
            raise lost(entry, gone, f"{self._name} in {self._place[0]}-{self._place[1]}")
        try:
            self._write(term, self._key, entry.done().to_json() if self._streaming else None)
        except (KafkaError, OSError) as error:
            log.warning("%s: batch %d is written; the ledger hears of it later: %s", self._name, batch, error)

    def abort(self, term: Term, query: str, batch: int, participants: Sequence[Participant]) -> bool:
        """Abort a batch unless it was decided, or another driver has taken over; return whether it is aborted."""
        outcome = self._transactions.end([term.owner], commit=False)[term.owner].error
        if outcome in FENCING:
            log.warning("%s: another driver has taken over: %s", self._name, self._who_drives())
            return False
        entry = self._entry(self._ledger.read(self._place))
        if entry is not None and (entry.query, entry.batch) == (query, batch):
            log.warning("%s: batch %d is decided; it is finished when the query starts again", self._name, batch)
            return False
        self._transactions.end([each.owner for each in participants], commit=False)
        return True

    def abort_losers(self, run: str) -> None:
        """Abort what attempts of this run have left open: those that won are ended by now."""
        try:
            self._abort_others(run_prefix(self._name, run))
        except (KafkaError, OSError) as error:
            log.warning("%s: what attempts have left open is aborted later: %s", self._name, error)

    def _commit_all(self, entry: Entry) -> list[Participant]:
        """Commit what a decided batch consists of; return those for which it is too late."""
        outcomes = self._transactions.end([each.owner for each in entry.participants], commit=True)
        return [each for each in entry.participants if outcomes[each.owner].error is not ErrorCode.NONE]

    def _write(self, term: Term, key: bytes, value: bytes | None) -> Term:
        """Write a record in a transaction of the driver's; raises BrokerError, FENCING where another has taken over."""
        self._transactions.write(term.owner, self._place, key, value, term.sequence)
        ended = self._transactions.end([term.owner], commit=True)[term.owner]
        if ended.error is not ErrorCode.NONE:
            raise error_for(ended.error, f"the ledger of {self._name} was not written")
        sequence = term.sequence + 1 if ended.owner == term.owner else 0
        return replace(term, owner=ended.owner, sequence=sequence)

    def _abort_others(self, prefix: str) -> None:
        for transactional_id in self._transactions.open_ones(prefix):
            log.warning("aborting the transaction that was left open by %s", transactional_id)
            self._transactions.take(transactional_id, DRIVER_TIMEOUT_MS)

    def _entry(self, values: dict[bytes, bytes]) -> Entry | None:
        value = values.get(self._key)
        return None if value is None else read_entry(value)

    def _fenced(self, batch: int) -> LedgerError:
        return LedgerError(
            f"batch {batch} is not written: another driver has taken over the query {self._name!r}:"
            f" {self._who_drives()}. Two queries must not share a checkpoint, or an exactlyOnceName"
        )

    def _who_drives(self) -> str:
        return self._ledger.read(self._place).get(self._driver_key, b"nobody knows who").decode()

    @property
    def _driver_key(self) -> bytes:
        return f"driver\0{self._name}".encode()

    def _longest_ms(self) -> int:
        """Return the longest time that all brokers let a transaction be open."""
        try:
            longest = min(map(int, self._cluster.broker_config(LONGEST).values()))
        except (KafkaError, ValueError) as error:
            log.warning("%s is not known (%s): transactions of tasks may be open for 15 min", LONGEST, error)
            longest = 900_000
        return min(longest, self._options.transaction_timeout_ms or longest)


@contextmanager
def driver_of(options: WriteOptions, name: str, *, streaming: bool) -> Iterator[Driver]:
    """Connect to the brokers; raises OptionError where a client's option is wrong."""
    from kbroker.client.client_config import ClientConfig
    from kbroker.client.settings import RENAMED

    known = {field.name for field in dataclasses.fields(ClientConfig)}
    client = {}
    for key, value in options.client.items():
        plain = key.replace(".", "_").lower()
        if RENAMED.get(plain, plain) in known:
            client[key] = value
    given = {"client_id": "kbroker-spark", **client, "isolation_level": "read_committed"}
    try:
        cluster = PlainCluster(options.bootstrap, given)
    except ValueError as error:
        raise OptionError(f"one of the options kafka.* is wrong: {error}") from error
    with cluster:
        yield Driver(cluster, options, name, streaming=streaming)


def this_driver() -> str:
    """Return where this query is driven from, for others to find it: Spark's daemon lives as long as its JVM."""
    return f"host {socket.gethostname()}, process {os.getppid()}"


def prefix_of(name: str) -> str:
    """Return how all transactional ids of a query begin."""
    return f"{PREFIX}{hashlib.sha256(name.encode()).hexdigest()[:16]}-"


def run_prefix(name: str, run: str) -> str:
    """Return how those of one run begin: tasks of a driver that was fenced off share no id with its successor's."""
    return f"{prefix_of(name)}{hashlib.sha256(run.encode()).hexdigest()[:8]}-"


def driver_id(name: str) -> str:
    """Return the driver's own transactional id."""
    return f"{prefix_of(name)}driver"


def transactional_id(name: str, run: str, batch: int, partition: int, attempt: int, places: int = 0) -> str:
    """Return a task's: those of neighbouring batches differ, so that a late attempt cannot fence the next batch's.

    `places`: as in Term; all of a query are in its driver's partition then, so that one append decides what is ended
    together, and one broker is asked. Where there are other partitions by the next batch, other ids are made: nobody
    finds a transaction by making its id again.
    """
    plain = f"{run_prefix(name, run)}{batch % 4}-{partition}-{attempt}"
    if places <= 1:
        return plain
    home = partition_for(driver_id(name), places)
    # Counted up, names reach few partitions where their number is near a multiple of Java's 31.
    names = (f"{plain}-{hashlib.sha256(b'%d' % number).hexdigest()[:8]}" for number in range(MOST_TRIES * places))
    return next((each for each in names if partition_for(each, places) == home), plain)

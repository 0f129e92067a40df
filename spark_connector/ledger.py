"""What a query that writes exactly once remembers of its batches; decides, and touches nothing.

    decided   a batch is written: these transactions are to be committed, whoever comes across them
    done      they are

A ledger holds one entry for each query, the newest, as JSON under the query's name:

    {"query": "5233…", "batch": 17, "state": "decided", "driver": "host h, process 5", "at": 1700000000000,
     "rows": 120, "participants": [{"id": "kbroker-spark-…", "producer": 4011, "epoch": 3, "rows": 120,
                       "offsets": [["orders", 0, 15, 220], …]}, …]}
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbroker.client.plain_transactions import Owner

log = logging.getLogger(__name__)

DECIDED, DONE = "decided", "done"


class LedgerError(RuntimeError):
    """A batch that cannot be written exactly once; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Participant:
    """A task's transaction."""

    owner: Owner
    rows: int
    offsets: tuple[tuple[str, int, int, int], ...] = ()
    """Topic, partition, first and last offset of what it wrote; records of others may lie between."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The newest batch of a query that was decided."""

    query: str
    """The id that Spark keeps in the checkpoint: another one is another query in the same place."""
    batch: int
    driver: str
    at_ms: int
    participants: tuple[Participant, ...] = ()
    """None once it is done."""
    is_done: bool = False
    rows_when_done: int | None = None
    """Rows of all participants there were, where it is known."""

    @property
    def rows(self) -> int | None:
        """How many the batch has; None where that is not known any more."""
        return self.rows_when_done if self.is_done else sum(each.rows for each in self.participants)

    def done(self) -> Entry:
        """Return the entry that says so."""
        return replace(self, is_done=True, rows_when_done=self.rows, participants=())

    def to_json(self) -> bytes:
        """Return the record's value."""
        participants = [
            {
                "id": each.owner.transactional_id,
                "producer": each.owner.producer_id,
                "epoch": each.owner.epoch,
                "rows": each.rows,
                "offsets": each.offsets,
            }
            for each in self.participants
        ]
        entry = {
            "query": self.query,
            "batch": self.batch,
            "state": DONE if self.is_done else DECIDED,
            "driver": self.driver,
            "at": self.at_ms,
            "rows": self.rows,
            "participants": participants,
        }
        return json.dumps(entry, separators=(",", ":")).encode()


def read_entry(value: bytes) -> Entry:
    """Read a record's value; raises LedgerError where it is none of ours."""
    try:
        found: dict[str, Any] = json.loads(value)
        participants = tuple(
            Participant(
                Owner(each["id"], each["producer"], each["epoch"]),
                each["rows"],
                tuple((topic, partition, first, last) for topic, partition, first, last in each["offsets"]),
            )
            for each in found["participants"]
        )
        is_done = {DONE: True, DECIDED: False}[found["state"]]
        rows = found.get("rows") if is_done else None
        return Entry(found["query"], found["batch"], found["driver"], found["at"], participants, is_done, rows)
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"the ledger holds what is no entry of it ({error!r}): {value[:200]!r}") from error


def is_written(entry: Entry | None, query: str, batch: int) -> bool:
    """Return whether a batch that begins was written before; raises LedgerError where later ones were, too."""
    if entry is None or entry.query != query or batch > entry.batch:
        return False
    if batch == entry.batch:
        return True
    raise LedgerError(
        f"batch {batch} begins, but batch {entry.batch} of this query (id {query}) is written already, decided by"
        f" {entry.driver}: the checkpoint was set back. Its batches from {batch} to {entry.batch} would be written"
        " twice. Restore the newer checkpoint; or, if they are to be written again, begin with a new checkpoint"
    )


def check_rows(entry: Entry, rows: int, lost_batch: str) -> None:
    """Hold what a batch that was written before has now against what it had; raises LedgerError where it is more.

    `lost_batch`: as the option says it.
    """
    if entry.rows is None or entry.rows == rows:
        return
    if entry.rows > rows or lost_batch == f"{entry.batch} skip":
        log.warning("batch %d was written before, with %d rows; now it has %d", entry.batch, entry.rows, rows)
        return
    raise LedgerError(
        f"batch {entry.batch} comes with {rows} rows, but {entry.rows} are written, decided by {entry.driver}: the"
        " checkpoint was set back by this batch, and more had arrived when it was planned again (or the query makes"
        " other rows of the same input each time). What was not there the first time would be left out. Restore the"
        f' newer checkpoint, or begin with a new one; the option exactlyOnceLostBatch="{entry.batch} skip" goes on'
        " without these rows"
    )


def not_open(batch: int, participants: Sequence[Participant], states: dict[Owner, str], timeout_ms: int) -> LedgerError:
    """Return the error of a batch that cannot be decided any more: nothing of it is lost, it is written again."""
    gone = [each.owner for each in participants if states[each.owner] != "Ongoing"]
    return LedgerError(
        f"batch {batch} is not written: the transactions of {len(gone)} of its {len(participants)} tasks are not open"
        f" any more ({gone[0].transactional_id}: {states[gone[0]] or 'ended, and begun anew'}). Brokers abort those"
        f" that are open for longer than {timeout_ms / 1000:g} s (transaction.max.timeout.ms): raise it, or make"
        " batches smaller. The batch is written when the query starts again"
    )


def lost(entry: Entry, gone: Sequence[Participant], name: str) -> LedgerError:
    """Return the error of a decided batch of which some transactions cannot be committed any more."""
    rows = sum(each.rows for each in gone)
    places = [
        f"{topic}-{partition} offsets {first} to {last} (producer id {each.owner.producer_id})"
        for each in gone
        for topic, partition, first, last in each.offsets
    ]
    return LedgerError(
        f"batch {entry.batch} is written in part: it was decided by {entry.driver}, but {rows} of its {entry.rows}"
        f" rows, in {len(gone)} of {len(entry.participants)} transactions, were aborted by the brokers before they were"
        " committed (the query stood still for longer than transaction.max.timeout.ms). Missing:"
        f" {'; '.join(places[:20])}{' …' if len(places) > 20 else ''}. Readers with isolation.level=read_uncommitted"
        " still see them there. The query goes on when it is told how, by the option exactlyOnceLostBatch:"
        f' "{entry.batch} again" writes the whole batch again (its other rows come twice), "{entry.batch} skip" leaves'
        f" these rows out (write them by other means). Ledger entry: {name}"
    )

"""`kbroker topic produce --from`: the rows of a file become records, by `send_arrow`.

Whatever ends it early (bad input, a broker's refusal, Ctrl-C), everything that was read is sent, and the last line says
how many rows are written and how to go on behind them.
"""

import sys
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from kbroker.cli.errors import CommandFailed, one_line
from kbroker.cli.interrupts import INTERRUPTED, interrupts
from kbroker.cli.produce import counted
from kbroker.cli.profiles import chosen_bootstrap
from kbroker.cli.progress import progress_bar
from kbroker.client.errors import RowTooLarge
from kbroker.client.table_delivery import RowRange, TableDelivery

if TYPE_CHECKING:
    from kbroker import Producer
    from kbroker.cli.table_input import Piece, TableInput

RESULT_TIMEOUT_S = 150.0


class Sent(NamedTuple):
    """A piece on its way: the number of its first row or line, how many rows come before it."""

    first: int
    before: int
    delivery: TableDelivery


@dataclass(slots=True)
class Outcome:
    """What became of the rows so far."""

    rows: int = 0
    """Sent, whether written or not."""
    written: int = 0
    failure: str | None = None
    """The first one; then nothing more is sent."""
    first_failed: int | None = None
    """So many rows are before the first one that is not written."""
    waiting: deque[Sent] = field(default_factory=deque)

    def settle(self, row_word: str, *, wait: bool) -> None:
        """Count the pieces that are done, in order; all of them if it may wait."""
        while self.waiting and (wait or self.waiting[0].delivery.done()):
            first, before, delivery = self.waiting.popleft()
            error = delivery.exception(RESULT_TIMEOUT_S)
            if error is None:
                self.written += delivery.result(0).rows
                continue
            self.written += sum(part.rows for part in error.partitions.values())
            part, reason = min(error.failures, key=lambda failure: failure[0].first)
            if self.first_failed is None:
                self.first_failed = before + part.first
            self.failure = self.failure or f"{_place(row_word, first, error.failed_rows, part)}: {reason}"


def _place(row_word: str, first: int, failed: int, part: RowRange) -> str:
    """Say which rows are not written, as well as that is known."""
    if failed == 1 and part.first == part.last:
        return f"{row_word} {first + part.first} is not written"
    rows = f"{row_word}s {first + part.first} to {first + part.last}"
    place = rows if part.partition is None else f"{rows} that belong to partition {part.partition}"
    return f"{failed} {row_word}s are not written, first {part.rows} of {place}"


def send_file(
    source: "TableInput",
    topic: str,
    bootstrap: str,
    options: dict[str, Any],
    *,
    headers: list[tuple[str, bytes | None]],
    partition: int | None,
    skip: int,
) -> None:
    """Send all rows but the first `skip`; how many to standard error. Raises CommandFailed when not all are written."""
    from kbroker import Producer
    from kbroker.cli.admin import check_reach

    check_reach(bootstrap)
    outcome = Outcome()
    unit: Any = "count" if source.format == "parquet" else "bytes"
    with (
        Producer(chosen_bootstrap(bootstrap), **{"client_id": "kbroker-cli", **options}) as producer,
        interrupts(second_raises=True) as stop,
        progress_bar(f"{source.name} to {topic}", source.total, unit) as show,
    ):
        try:
            pieces = source.pieces()
            while not stop and outcome.failure is None:
                try:
                    with stop.raising():
                        piece = next(pieces, None)
                except KeyboardInterrupt:
                    break
                if piece is None:
                    break
                skip = _send(producer, source, topic, piece, outcome, headers, partition, skip)
                show(piece.done)
                outcome.settle(source.row_word, wait=False)
        except Exception as error:
            outcome.failure = one_line(error)
            if outcome.failure is None:
                raise
        producer.flush()
        outcome.settle(source.row_word, wait=True)
    _report(source, counted(outcome.written, topic, options), outcome, skip, interrupted=bool(stop))


def _send(
    producer: "Producer",
    source: "TableInput",
    topic: str,
    piece: "Piece",
    outcome: Outcome,
    headers: list[tuple[str, bytes | None]],
    partition: int | None,
    skip: int,
) -> int:
    """Send a piece without the rows that are left out; returns how many are to be left out still."""
    left_out: int = min(skip, piece.table.num_rows)
    table = piece.table.slice(left_out)
    first = piece.first + left_out
    outcome.rows += left_out
    if table.num_rows:
        try:
            delivery = producer.send_arrow(
                topic,
                table,
                key="key",
                value="value",
                headers=headers or None,
                partition=partition,
                timestamp=None if table["timestamp"].null_count else "timestamp",
            )
        except RowTooLarge as error:
            row = f"{source.row_word} {first + error.row} makes a record of {error.size} bytes"
            how = "raise it with -X max.request.size=BYTES, and the topic's max.message.bytes"
            raise source.failed(f"{row}, max.request.size allows {error.limit}: {how}") from None
        except ValueError as error:
            raise CommandFailed(str(error)) from None
        outcome.waiting.append(Sent(first, outcome.rows, delivery))
        outcome.rows += table.num_rows
    return skip - left_out


def _report(source: "TableInput", count: str, outcome: Outcome, skip: int, *, interrupted: bool) -> None:
    if outcome.failure is None and not interrupted:
        if skip:
            raise CommandFailed(f"{source.name} has {outcome.rows} rows, so --skip left out all of them")
        print(count, file=sys.stderr)
        return
    if outcome.first_failed is not None:
        go_on = f"--skip {outcome.first_failed} sends the rows from the first that is not written on"
    else:
        go_on = f"--skip {outcome.rows} goes on behind them" if outcome.rows else "nothing was sent"
    if outcome.failure is not None:
        raise CommandFailed(f"{outcome.failure} ({count}; {go_on})")
    print(f"interrupted: {count}; {go_on}", file=sys.stderr)
    raise typer.Exit(INTERRUPTED)

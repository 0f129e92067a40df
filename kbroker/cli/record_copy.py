"""Records from a consumer to a text or a table: the loop of `topic consume`, its ends and its commits."""

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from kbroker.cli.errors import CommandFailed, one_line
from kbroker.cli.interrupts import Interrupts

if TYPE_CHECKING:
    from kbroker import Consumer, TopicPartition
    from kbroker.cli.positions import StartPosition
    from kbroker.cli.record_filter import RecordFilter
    from kbroker.cli.record_text import Writer

POLL_SECONDS = 0.2
FLUSH_SECONDS = 1.0
"""How long rows wait for others before they are written to a file that is read by lines."""
SILENT_SECONDS = 10.0
"""How long nothing may come of what is there to read before its leaders are asked whether it will."""
Ends = dict["TopicPartition", int]


class Sink(Protocol):
    """Where records go."""

    @property
    def may_flush(self) -> bool:
        """Whether what is flushed is there for others before the end."""

    def write(self, records: Any) -> None:
        """Take some records."""

    def flush(self) -> None:
        """Pass on what was taken."""

    def close(self) -> None:
        """Write the rest."""


class Copy:
    """From a consumer to a sink. If it `commits`, then what the sink has passed on, before anything is given up."""

    def __init__(
        self, consumer: "Consumer", stop: Interrupts, *, commits: bool, wanted: "RecordFilter | None" = None
    ) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._read = 0
        """Records that were looked at."""
        self._sink: Sink | None = None
        """While it runs."""
        self._stop = stop
        self._commits = commits
        self._written = 0
        self._flushed_at = time.monotonic()

    def join(self, topics: Sequence[str], position: "StartPosition") -> Ends:
        """Join the group; return where partitions end now that have something to read for it."""
        from kbroker import RebalanceListener, TopicPartition

        consumer, job = self._consumer, self

        class Listener(RebalanceListener):
            def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
                job.pass_on()

            def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
                pass  # too late to commit

        every = [TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for(topic)]
        first, ends = consumer.beginning_offsets(every), consumer.end_offsets(every)
        new = {each for each, offset in consumer.committed(every).items() if offset is None}
        consumer.subscribe(topics, listener=Listener())
        at_end = new if position.kind == "end" else set()
        return {each: end for each, end in ends.items() if end > first[each] and each not in at_end}

    def run(self, sink: Sink, ends: Ends | None, count: int | None, topic: str, to: Path | None) -> bool:
        """Copy, close the sink, commit; with a file, say how many. Returns False where Ctrl-C came before the end."""
        from kbroker.cli.progress import progress_bar

        sys.stdout.flush()
        text, total = ("", None) if to is None else (f"{topic} to {to}", self._total(ends, count))
        bar = progress_bar(text, total) if to is not None else contextlib.nullcontext(lambda done: None)
        self._sink = sink
        try:
            try:
                with bar as show:
                    is_whole = self._copy(sink, ends, count, show)
            finally:
                self._sink = None
                sink.close()
            if self._commits:
                self._consumer.commit()
        except Exception as error:
            reason = one_line(error)
            if to is None or reason is None:
                raise
            raise CommandFailed(f"{reason} ({to} has what came before)") from error
        if self._wanted is not None:
            print(f"{self._written} of {self._read} records are what was asked for", file=sys.stderr)
        if to is not None:
            print(f"{self._written} record{'' if self._written == 1 else 's'} written to {to}", file=sys.stderr)
        return is_whole

    def _total(self, ends: Ends | None, count: int | None) -> int | None:
        """Say how many records there are to copy, where that is known."""
        if ends is None or self._consumer.in_group or self._wanted is not None:
            return count
        left = sum(max(0, end - self._consumer.position(partition)) for partition, end in ends.items())
        return left if count is None else min(left, count)

    def _copy(self, sink: Sink, ends: Ends | None, count: int | None, show: Callable[[int], None]) -> bool:
        """Copy until there were `count`, or to each of `ends` (None: for ever); False where Ctrl-C came before.

        A member of a group ends when what it has been given is read; it writes all of it, as all of it is committed.
        """
        read = self._reader(sink)
        came_at = self._flushed_at = time.monotonic()
        while ends is None or not self._reached(ends):
            if self._stop:
                return ends is None and count is None
            before = self._read
            records = self._next(read, ends, None if count is None else count - self._written)
            if len(records):
                sink.write(records)
                self._written += len(records)
                show(self._written)
            if self._written == count:
                return True
            if self._read != before:
                came_at = time.monotonic()
            elif ends is not None and time.monotonic() >= came_at + SILENT_SECONDS:
                self._ask_for(ends)
                came_at = time.monotonic()
            if time.monotonic() >= self._flushed_at + FLUSH_SECONDS:
                self.pass_on()
        return True

    def _ask_for(self, ends: Ends) -> None:
        """Nothing has come for long: raise where a partition has no leader, else say what is waited for."""
        left = {each: at for each, at in self._consumer.positions.items() if each in ends and at < ends[each]}
        with contextlib.suppress(KeyboardInterrupt), self._stop.raising():
            self._consumer.end_offsets(left)
            for each, at in sorted(left.items()):
                print(f"waiting for {each}, read up to {at} of {ends[each]}", file=sys.stderr)

    def _next(self, read: Callable[..., Any], ends: Ends | None, limit: int | None) -> Any:
        """Read some records that are wanted, at most `limit`."""
        in_group, wanted = self._consumer.in_group, self._wanted
        # A member commits what it has read: so it reads no more than it may write.
        records = read(limit if wanted is None or in_group else None, None if in_group else ends)
        self._read += len(records)
        if wanted is None or not len(records):
            return records
        found = wanted.apply(records)
        return found if limit is None else found[:limit]

    def _reader(self, sink: Sink) -> Callable[[int | None, Mapping[Any, int] | None], Any]:
        if isinstance(sink, TextSink):
            return self._read_records
        from kbroker.cli.table_output import BatchReader

        return BatchReader(self._consumer, POLL_SECONDS).read

    def _read_records(self, limit: int | None, ends: Mapping[Any, int] | None) -> Any:
        records = self._consumer.poll(POLL_SECONDS, limit)
        if ends is None:
            return records
        return [record for record in records if record.offset < ends[record.topic, record.partition]]

    def pass_on(self) -> None:
        """Flush and commit, unless nobody would have it before the end."""
        if self._sink is None or not self._sink.may_flush:
            return
        from kbroker.client.errors import BrokerError

        self._sink.flush()
        self._flushed_at = time.monotonic()
        if self._commits:
            # When the group has moved on, its members read some records again; the commit at the end says it.
            with contextlib.suppress(BrokerError):
                self._consumer.commit()

    def _reached(self, ends: Ends) -> bool:
        consumer = self._consumer
        if not consumer.in_group:
            return all(consumer.position(partition) >= end for partition, end in ends.items())
        positions = consumer.positions
        if positions:
            return all(offset >= ends.get(partition, -1) for partition, offset in positions.items())
        # Nothing to read for this member (yet): it is done when the others are.
        committed = consumer.committed(ends)
        return all(offset is not None and offset.offset >= ends[each] for each, offset in committed.items())


class TextSink:
    """Each record as a function writes it, at once."""

    may_flush = True

    def __init__(self, stream: IO[bytes], write: "Writer") -> None:
        self._stream = stream
        self._write = write

    def write(self, records: Any) -> None:
        """Write the records."""
        self._stream.write(self._write(records))
        self._stream.flush()

    def flush(self) -> None:
        """Everything is written already."""

    def close(self) -> None:
        """Nothing is left to write."""

"""A batch of records from its first record to its outcome, and the futures that its senders hold.

Any thread may wait for a batch, and any event loop: its outcome is told by the producer's own thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from kbroker.client.callbacks import callback_raised
from kbroker.client.errors import ClientClosed, IllegalState, TimedOut
from kbroker.client.types import RecordMetadata
from kbroker.protocol.records.builder import BatchBuilder

log = logging.getLogger(__name__)


class Batch:
    """Records of one partition that are sent as one; `done` once acknowledged or given up."""

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "building",
        "count",
        "created",
        "data",
        "deadline",
        "done",
        "error",
        "listeners",
        "outcome",
        "partition",
        "parts",
        "process",
        "size",
        "thread",
        "timestamp",
        "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, builder: BatchBuilder | None, now: float, deadline: float) -> None:
        self.topic = topic
        self.partition = partition
        self.builder = builder
        self.created = now
        self.deadline = deadline
        self.count = 0
        self.size = 0
        self.data: bytearray | None = None
        self.building: asyncio.Future[bytearray] | None = None
        self.base_sequence = -1
        self.attempts = 0
        self.done = False
        self.error: Exception | None = None
        self.base_offset = -1
        self.timestamp = -1
        """Of the broker, where it stamps (LogAppendTime)."""
        self.listeners: list[Callable[[], None]] | None = []
        self.outcome: tuple[int, int, Exception | None] | None = None
        """What `finish` will be told once everything sent before it has finished."""
        self.parts: list[Batch] = []
        """What it was split into, in order, because the broker found it too large."""
        self.process = os.getpid()
        """After a fork nobody sends it in the child."""
        self.thread = 0
        """The one that will tell the outcome, and so must not wait for it."""

    def split_into(self, parts: list[Batch]) -> None:
        """These are sent instead; this one is done when all of them are."""
        self.parts = parts
        self.builder = self.data = None
        for part in parts:
            part.when_done(self._part_done)

    def _part_done(self) -> None:
        if all(part.done for part in self.parts):
            first = self.parts[0]
            self.finish(first.base_offset, first.timestamp, next((p.error for p in self.parts if p.error), None))

    def part_of(self, index: int) -> tuple[Batch, int]:
        """Return the batch in which a record was sent in the end, and its number there."""
        for part in self.parts:
            if index < part.count:
                return part.part_of(index)
            index -= part.count
        return self, index

    @property
    def has_ended(self) -> bool:
        """Whether its outcome is known, though it may not be told yet as something sent before it has none."""
        return self.done or self.outcome is not None

    def leaves(self) -> Iterator[Batch]:
        """Yield what was sent in the end."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def when_done(self, listener: Callable[[], None]) -> None:
        """Call the listener once it is done, now if it is already."""
        listeners = self.listeners
        if listeners is not None:
            listeners.append(listener)
            # finish() may have taken the list between the two lines above.
            if self.listeners is not None or listener not in listeners:
                return
            listeners.remove(listener)
        listener()

    def finish(self, base_offset: int, timestamp: int = -1, error: Exception | None = None) -> None:
        """Record the outcome and tell everybody who waits; the records' bytes are let go."""
        self.base_offset, self.timestamp, self.error = base_offset, timestamp, error
        self.builder = self.data = None
        self.done = True
        listeners, self.listeners = self.listeners, None
        while listeners:
            try:
                listeners.pop(0)()
            except BaseException as error:
                callback_raised(error, "a delivery callback")


def done_future(when_done: Callable[[Callable[[], None]], None]) -> asyncio.Future[None]:
    """Return a future of the running loop that is set once something is done, on whichever thread that is."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def set_result() -> None:
        if not future.done():
            future.set_result(None)

    def tell() -> None:
        if asyncio._get_running_loop() is loop:
            set_result()
            return
        try:
            loop.call_soon_threadsafe(set_result)
        except RuntimeError:
            log.debug("an event loop that waited for a delivery was closed before it came")

    when_done(tell)
    return future


def wait_for(when_done: Callable[[Callable[[], None]], None], thread: int, timeout: float | None) -> None:
    """Wait until something is done, which that thread will say; TimedOut after `timeout` s."""
    if threading.get_ident() == thread and timeout != 0:
        text = "the delivery is told by the very thread that would wait for it"
        raise IllegalState(f"{text}: await it, or use add_done_callback")
    event = threading.Event()
    when_done(event.set)
    if not event.wait(timeout):
        raise TimedOut(f"not acknowledged within {timeout:g} s")


class Delivery:
    """A record's future: `result(timeout)`, `exception()`, `done()`, `add_done_callback`, and `await` on any loop.

    Waiting with `result` in a callback, or on the event loop of an asyncio producer, would last for ever: IllegalState.
    """

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: Batch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait and return where the record was written, or raise why it was not; TimeoutError after `timeout` s."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait and return the error, None when the record was written."""
        batch = self._batch
        if not batch.done:
            if os.getpid() != batch.process:
                raise ClientClosed("sent before a fork: only the parent process learns what became of it")
            wait_for(batch.when_done, batch.thread, timeout)
        return batch.part_of(self._index)[0].error

    def add_done_callback(self, callback: Callable[[Delivery], None]) -> None:
        """Call back with this handle once the outcome is known, on the client's own thread."""
        self._batch.when_done(lambda: callback(self))

    def _metadata(self) -> RecordMetadata:
        batch, index = self._batch.part_of(self._index)
        offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        timestamp = batch.timestamp if batch.timestamp >= 0 else self._timestamp
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._batch
        if not batch.done:
            yield from done_future(batch.when_done)
        error = batch.part_of(self._index)[0].error
        if error is not None:
            raise error
        return self._metadata()

    def __repr__(self) -> str:
        state = "waiting" if not self._batch.done else repr(self.exception(0) or self._metadata())
        return f"<Delivery {self._batch.topic}-{self._batch.partition} {state}>"

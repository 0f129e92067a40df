"""Requests that wait: a Produce for its replicas or its flush, a Fetch for records. Woken by the event, not by polling.

What waits hangs on the hosted partitions it waits for; an event on the partition touches it. Nothing is looked at
twice in one turn of the event loop: a fetch that waits for many partitions of one Produce looks once, after all, and
only at those that have changed; all of its partitions are read once more, for the answer.

    HostedPartition.acks          acks=all: answered when the high watermark reaches their offset
    HostedPartition.flush_acks    acks=1 with flush.messages: answered when the log is flushed up to their offset
    HostedPartition.consumers     fetches that wait for the high watermark (or last stable offset)
    HostedPartition.followers     fetches that wait for the log end offset
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.replica.hosted import HostedPartition

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.016
"""A fetch that was woken but has not enough bytes yet is looked at again no sooner: small appends come in bursts. Each
pause is twice as long as the one before, so that who wants much does not cost much."""


class DelayedAnswer:
    """One request for many partitions: what became of each, and the answer once that is known of all.

        answer = DelayedAnswer(timeout_ms, respond)
        answer.results.append(result)               # partition by partition, in the request's order: its place
        answer.wait_for(place, hosted.acks, 7)      # counts once the offset is reached: `settle`
        answer.expect(place)                        # the result is put there later, before `settle`
        answer.future                               # None: all is known; else resolves to respond(results)

    A result that is not there when the time is over becomes REQUEST_TIMED_OUT, as does one that does not count yet.
    """

    __slots__ = ("_open", "_respond", "_timeout_ms", "_timer", "future", "needs_request", "results")

    def __init__(self, timeout_ms: int, respond: Callable[[list[Any]], Any]) -> None:
        self.results: list[Any] = []
        """By place; a failure is a KafkaError."""
        self.future: asyncio.Future[Any] | None = None
        self.needs_request = False
        """Whether somebody still works on the request's bytes: a result is expected."""
        self._respond = respond
        self._timeout_ms = timeout_ms

    def expect(self, place: int) -> None:
        """The result at this place comes later."""
        self.needs_request = True
        self._begin_to_wait(place)

    def wait_for(self, place: int, acks: list[Ack], offset: int) -> None:
        """The result at this place counts when whoever keeps `acks` reaches the offset."""
        self._begin_to_wait(place)
        acks.append((offset, self, place))

    def _begin_to_wait(self, place: int) -> None:
        if self.future is None:
            loop = asyncio.get_running_loop()
            self.future = loop.create_future()
            self._open: set[int] = set()
            self._timer = loop.call_later(max(self._timeout_ms, 0) / 1000, self._time_out)
        self._open.add(place)

    def settle(self, place: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """The result at this place counts, or has come to nothing; the last one answers the request."""
        if self.future is None or place not in self._open:
            return
        self._open.discard(place)
        if error is not ErrorCode.NONE:
            self.results[place] = KafkaError(error)
        if not self._open:
            self._finish()

    def fail(self, place: int, error: KafkaError) -> None:
        """The result at this place is an error."""
        self.results[place] = error
        self.settle(place)

    def _time_out(self) -> None:
        for place in self._open:
            self.results[place] = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        self._open.clear()
        self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        assert self.future is not None
        if not self.future.done():
            self.future.set_result(self._respond(self.results))


Ack = tuple[int, DelayedAnswer, int]
"""(offset to reach, the request, the partition's place in it)"""


def settle_reached(acks: list[Ack], reached: int, error: ErrorCode = ErrorCode.NONE) -> list[Ack]:
    """Settle those whose offset is reached; return the others."""
    waiting = []
    for ack in acks:
        offset, delayed, place = ack
        if offset <= reached:
            delayed.settle(place, error)
        else:
            waiting.append(ack)
    return waiting


class Fetch(Protocol):
    """A fetch that found too little."""

    by_log_end: bool
    """Waits for the log end offset (a follower) instead of the high watermark."""

    def is_enough(self, changed: Iterable[HostedPartition]) -> bool:
        """Look at the partitions that have changed: is there enough by now, or something to be told at once?"""

    def answer(self) -> Any:
        """Return the answer, with what there is."""


class DelayedFetch:
    """A Fetch request that waits until there is enough, its time is over, or nobody wants the answer any more."""

    __slots__ = ("_changed", "_check_at", "_fetch", "_hosted", "_loop", "_pause_s", "_scheduled", "_timer", "future")

    def __init__(self, fetch: Fetch, hosted: Iterable[HostedPartition], max_wait_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._fetch = fetch
        self._hosted = list(hosted)
        self._changed: dict[HostedPartition, None] = {}
        self._check_at = 0.0
        self._pause_s = SHORTEST_PAUSE_S
        self._scheduled: asyncio.Handle | None = None
        self._timer = self._loop.call_later(max_wait_ms / 1000, self.end)
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self.future.add_done_callback(self._leave)
        for partition in self._hosted:
            (partition.followers if fetch.by_log_end else partition.consumers).add(self)

    def touch(self, hosted: HostedPartition) -> None:
        """This partition has changed: look at it, once, later in this turn of the loop or when the pause is over."""
        self._changed[hosted] = None
        if self._scheduled is None:
            if self._check_at:
                self._scheduled = self._loop.call_at(self._check_at, self._check)
            else:
                self._scheduled = self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._scheduled = None
        changed, self._changed = self._changed, {}
        if self.future.done():
            return
        try:
            if self._fetch.is_enough(changed):
                self.future.set_result(self._fetch.answer())
        except Exception as error:
            self.future.set_exception(error)
        self._check_at = self._loop.time() + self._pause_s
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def end(self) -> None:
        """Answer now with what there is."""
        if self.future.done():
            return
        try:
            self.future.set_result(self._fetch.answer())
        except Exception as error:
            self.future.set_exception(error)

    def _leave(self, future: asyncio.Future[Any]) -> None:
        """Answered, or the client has gone: wait for nothing any more."""
        self._timer.cancel()
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        for partition in self._hosted:
            (partition.followers if self._fetch.by_log_end else partition.consumers).discard(self)
        self._hosted = []

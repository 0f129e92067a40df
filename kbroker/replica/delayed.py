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
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.replica.reply import Reply

if TYPE_CHECKING:
    from kbroker.replica.hosted import HostedPartition
    from kbroker.replica.read_ahead import ColdRead

log = logging.getLogger(__name__)

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.016
"""A fetch that was woken but has not enough bytes yet is looked at again no sooner: small appends come in bursts. Each
pause is twice as long as the one before, so that who wants much does not cost much."""


HELD = -1
"""The place of nothing, open while results are gathered."""


class DelayedAnswer:
    """One request for many partitions: what became of each, and the answer once that is known of all.

        answer = DelayedAnswer(timeout_ms, respond)
        answer.results.append(result)               # partition by partition, in the request's order: its place
        answer.wait_for(place, hosted.acks, 7)      # counts once the offset is reached: `settle`
        answer.expect(place)                        # the result is put there later, before `settle`
        answer.future                               # None: all is known; else resolves to respond(results)

    A result that is not there when the time is over becomes REQUEST_TIMED_OUT, as does one that does not count yet. Who
    gathers results in several turns of the loop calls `hold` before and `release` after it.
    """

    __slots__ = ("_is_time_over", "_open", "_respond", "_timeout_ms", "_timer", "future", "results")

    def __init__(self, timeout_ms: int, respond: Callable[[list[Any]], Any]) -> None:
        self.results: list[Any] = []
        """By place; a failure is a KafkaError, None is still expected."""
        self.future: asyncio.Future[Any] | None = None
        self._respond = respond
        self._timeout_ms = timeout_ms

    def hold(self) -> None:
        """Do not answer before `release`, whatever is settled until then."""
        self._is_time_over = False
        self._begin_to_wait(HELD)

    def release(self) -> asyncio.Future[Any]:
        """All results are there, or waited for; the answer comes by this future."""
        assert self.future is not None
        if self._is_time_over:
            self._open.discard(HELD)
            self._time_out()
        else:
            self.settle(HELD)
        return self.future

    def expect(self, place: int) -> None:
        """The result at this place comes later."""
        self._begin_to_wait(place)

    @property
    def needs_request(self) -> bool:
        """Whether somebody still works on the request's bytes: a result is expected."""
        return None in self.results

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

    def is_open(self, place: int) -> bool:
        """Whether the result at this place is still waited for."""
        return self.future is not None and place in self._open

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
        if HELD in self._open:
            self._is_time_over = True
            return
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT)  # one for all: making tens of thousands would hold others up
        for place in self._open:
            self.results[place] = late
        self._open.clear()
        self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        assert self.future is not None
        if self.future.done():
            return
        try:
            response = self._respond(self.results)
        except Exception as error:  # told to the client who waits, not to whoever happens to settle the last result
            self.future.set_exception(error)
        else:
            self.future.set_result(response)


class EachAnswer(DelayedAnswer):
    """The same where each result is told by itself, as soon as it counts: `told(place, result)`.

        place = len(answer.results)
        append(…, answer)           # as for any other answer: one result
        answer.tell(place)          # at once, if it counts already

    One that `is_over` takes no more. `respond` makes the answer to all of them together, where that is wanted, too: it
    goes out after the last result was told.
    """

    __slots__ = ("_told",)

    def __init__(
        self,
        timeout_ms: int,
        told: Callable[[int, Any], None],
        respond: Callable[[list[Any]], Any] = lambda results: None,
    ) -> None:
        super().__init__(timeout_ms, respond)
        self._told = told

    @property
    def is_over(self) -> bool:
        """Whether all that had to be waited for has come, or the time is over."""
        return self.future is not None and self.future.done()

    def tell(self, place: int) -> None:
        """Tell the result that is not waited for."""
        if not self.is_open(place):
            self._tell(place)

    def settle(self, place: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """The result at this place counts, or has come to nothing: it is told, if it was waited for."""
        if self.is_open(place):
            super().settle(place, error)
            if place != HELD:
                self._tell(place)

    def _time_out(self) -> None:
        late = [] if HELD in self._open else list(self._open)
        super()._time_out()
        for place in late:
            self._tell(place)

    def _tell(self, place: int) -> None:
        try:
            self._told(place, self.results[place])
        except Exception:  # nothing to whoever happens to settle it, and has others to settle
            log.exception("a result could not be told")


Ack = tuple[int, DelayedAnswer, int]
"""(offset to reach, the request, the partition's place in it)"""


def settle_reached(acks: list[Ack], reached: int) -> list[Ack]:
    """Settle those whose offset is reached; return the others."""
    waiting = []
    for ack in acks:
        offset, delayed, place = ack
        if offset <= reached:
            delayed.settle(place)
        else:
            waiting.append(ack)
    return waiting


class Fetch(Protocol):
    """A fetch that found too little."""

    by_log_end: bool
    """Waits for the log end offset (a follower) instead of the high watermark."""

    cold: list[ColdRead]
    """What the last attempt left out because it is not in memory."""

    def expired(self) -> None:
        """It has waited for as long as its client wants to: counted."""

    def is_enough(self, changed: Collection[HostedPartition]) -> bool | Awaitable[bool]:
        """Look at the partitions that have changed: is there enough by now, or something to be told at once?

        Of very many it may be an awaitable: nothing else is to be asked before that is done.
        """

    def attempt(self, final: bool, patient: bool = False) -> Any:
        """Return the answer; None when there is too little (unless `final`), or (unless `patient`) all there is is not
        in memory.
        """


class DelayedFetch:
    """A Fetch request that waits until there is enough, its time is over, or nobody wants the answer any more.

    When all that it found is not in memory it waits for the disk, longer than it was told to if need be.
    """

    __slots__ = (
        "_attempt",
        "_changed",
        "_check_at",
        "_fetch",
        "_has_come",
        "_hosted",
        "_is_reading",
        "_is_time_over",
        "_loop",
        "_pause_s",
        "_read_ahead",
        "_scheduled",
        "_timer",
        "reply",
    )

    def __init__(
        self,
        fetch: Fetch,
        hosted: Iterable[HostedPartition],
        max_wait_ms: int,
        read_ahead: Callable[[list[ColdRead]], asyncio.Future[Any]],
    ) -> None:
        """`fetch` was attempted, and found too little in memory."""
        self._loop = asyncio.get_running_loop()
        self._fetch = fetch
        self._read_ahead = read_ahead
        self._attempt: asyncio.Future[Any] | None = None
        """An attempt, or a look at what has changed, in turns that is under way."""
        self._is_reading = False
        self._has_come = False
        """Whether what was not in memory has come during work in turns."""
        self._is_time_over = False
        self._hosted = list(hosted)
        self._changed: dict[HostedPartition, None] = {}
        self._check_at = 0.0
        self._pause_s = SHORTEST_PAUSE_S
        self._scheduled: asyncio.Handle | None = None
        self._timer = self._loop.call_later(max_wait_ms / 1000, self._expire)
        self.reply = Reply()
        """The answer; given by what the loop calls."""
        self.reply.add_done_callback(self._leave)
        for partition in self._hosted:
            (partition.followers if fetch.by_log_end else partition.consumers)[self] = None
        self._read_what_is_cold()

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
        if self.reply.done() or self._attempt is not None:
            return
        changed, self._changed = self._changed, {}
        try:
            is_enough = self._fetch.is_enough(changed)
        except Exception as error:
            self.reply.set_exception(error)
            return
        if isinstance(is_enough, Awaitable):
            self._attempt = asyncio.ensure_future(is_enough)
            self._attempt.add_done_callback(self._looked)
            return
        self._pause()
        if is_enough:
            self._try(final=True)

    def _pause(self) -> None:
        self._check_at = self._loop.time() + self._pause_s
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def _looked(self, look: asyncio.Future[bool]) -> None:
        """All that had changed was looked at in turns."""
        self._pause()
        if self._has_ended(look):
            return
        if look.result():
            self._try(final=True)
        self._go_on()

    def _expire(self) -> None:
        self._fetch.expired()
        self.end()

    def end_soon(self) -> None:
        """Answer with what there is, as soon as the loop comes to it."""
        self._loop.call_soon(self.end)

    def end(self) -> None:
        """Answer now with what there is. For the loop: what the reply leads to happens at once."""
        self._is_time_over = True
        self._try(final=True)

    def _try(self, final: bool, patient: bool = False) -> None:
        if self.reply.done() or self._attempt is not None:
            return
        try:
            answer = self._fetch.attempt(final, patient)
        except Exception as error:
            self.reply.set_exception(error)
            return
        if hasattr(answer, "__await__"):
            self._attempt = asyncio.ensure_future(answer)
            self._attempt.add_done_callback(self._tried)
            return
        if answer is not None:
            self.reply.set_result(answer)
        self._read_what_is_cold()

    def _tried(self, attempt: asyncio.Future[Any]) -> None:
        """An attempt in turns is over."""
        if self._has_ended(attempt):
            return
        if attempt.result() is not None:
            self.reply.set_result(attempt.result())
        self._read_what_is_cold()
        self._go_on()

    def _has_ended(self, attempt: asyncio.Future[Any]) -> bool:
        """Whether there is nothing to wait for any more; else nothing is under way now."""
        self._attempt = None
        if self.reply.done():
            return True
        error = attempt.exception()
        if error is not None:
            self.reply.set_exception(error)
        return error is not None

    def _go_on(self) -> None:
        """What has come up during work in turns has its turn now, or after the pause."""
        if self.reply.done() or self._attempt is not None:
            return
        if self._has_come:
            self._has_come = False
            self._try(self._is_time_over, patient=True)
        elif self._is_time_over and not self._is_reading:
            self._try(final=True)
        elif self._changed and self._scheduled is None:
            self._scheduled = self._loop.call_at(self._check_at, self._check)

    def _read_what_is_cold(self) -> None:
        """Have it brought into memory: to be sent now, or with the next fetch."""
        if self._fetch.cold and not self._is_reading:
            self._is_reading = True
            self._read_ahead(self._fetch.cold).add_done_callback(self._has_read)

    def _has_read(self, done: asyncio.Future[Any]) -> None:
        self._is_reading = False
        if self._attempt is not None:
            self._has_come = True
        else:
            self._try(self._is_time_over, patient=True)

    def _leave(self, reply: Reply) -> None:
        """Answered, or the client has gone: wait for nothing any more."""
        self._timer.cancel()
        if self._attempt is not None:
            self._attempt.cancel()
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        for partition in self._hosted:
            (partition.followers if self._fetch.by_log_end else partition.consumers).pop(self, None)
        self._hosted = []

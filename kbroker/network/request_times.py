"""How many requests of each API there were, and how long they took: what Kafka's RequestMetrics say.

    frame complete ── queue ──▶ handler begins ── local ──▶ it has returned ── remote ──▶ the answer is ready
                   ── response queue ──▶ its turn on the connection ── send ──▶ all of it is in the socket

All requests are counted. Where many come, only one in some is timed, and counts for the others: about a hundred a
second of each API, so that the clock costs a request next to nothing.
"""

from __future__ import annotations

from collections import Counter
from time import monotonic

from kbroker.protocol.distribution import BOUNDS_BYTES, Distribution
from kbroker.protocol.errors import ErrorCode

SAMPLES_PER_S = 100
MOST_BETWEEN = 128
"""Requests for which one is timed, at most."""
PHASES = ("queue", "local", "remote", "response_queue", "response_send", "total")


class Times:
    """The distributions of one kind of request, in milliseconds; sizes in bytes."""

    __slots__ = (*PHASES, "size")

    def __init__(self) -> None:
        self.queue = Distribution()
        self.local = Distribution()
        self.remote = Distribution()
        self.response_queue = Distribution()
        self.response_send = Distribution()
        self.total = Distribution()
        self.size = Distribution(BOUNDS_BYTES)


class ApiRequests:
    """The requests of one API."""

    __slots__ = (
        "_sampled_at",
        "by_version",
        "by_version_from_brokers",
        "errors",
        "every",
        "from_brokers",
        "from_consumers",
        "name",
        "times",
        "to_skip",
    )

    def __init__(self, name: str, versions: int) -> None:
        """`versions`: how many there are, from 0 on."""
        self.name = name
        self.by_version = [0] * versions
        self.by_version_from_brokers = [0] * versions
        """Those of them that brokers sent; only of Fetch."""
        self.errors: Counter[ErrorCode] = Counter()
        """Codes in answers, those of single partitions, groups and the like too."""
        self.times = Times()
        self.from_brokers: Times | None = None
        """Of Fetch: followers', which are in `times` too; so are consumers'."""
        self.from_consumers: Times | None = None
        self.to_skip = 0
        """Requests until the next one is timed."""
        self.every = 1
        self._sampled_at = 0.0

    def timing(self, received: float, size: int) -> Timing:
        """Begin to time a request, and say how many others to leave out; it was complete at `received`."""
        now = monotonic()
        since = now - self._sampled_at
        weight = self.every
        self._sampled_at = now
        self.every = max(1, min(MOST_BETWEEN, int(weight / (SAMPLES_PER_S * since)) if since else MOST_BETWEEN))
        self.to_skip = self.every - 1
        return Timing(self, weight, received, now, size)


class Timing:
    """The way of one request."""

    __slots__ = ("_handled", "_requests", "begun", "is_from_broker", "ready", "received", "size", "turn", "weight")

    def __init__(self, requests: ApiRequests, weight: int, received: float, begun: float, size: int) -> None:
        self._requests = requests
        self.weight = weight
        self.received = received
        self.begun = begun
        self.size = size
        self.is_from_broker = False
        self._handled = 0.0
        self.ready = 0.0
        self.turn = 0.0

    def begins(self) -> None:
        """It is its turn, after it has waited in line."""
        self.begun = monotonic()

    def handled(self) -> None:
        """The handler has returned: an answer, or what is to be waited for."""
        self._handled = monotonic()

    def answered(self) -> None:
        """The answer is there."""
        self.ready = monotonic()

    def sending(self) -> None:
        """It is the answer's turn on its connection."""
        self.turn = monotonic()

    def sent(self) -> None:
        """All of it is out: count."""
        now = monotonic()
        handled = self._handled or now
        ready = max(self.ready, handled)
        turn = max(self.turn, ready)
        phases = (
            self.begun - self.received,
            handled - self.begun,
            ready - handled,
            turn - ready,
            now - turn,
            now - self.received,
        )
        requests, weight = self._requests, self.weight
        of_kind = requests.from_brokers if self.is_from_broker else requests.from_consumers
        for times in (requests.times,) if of_kind is None else (requests.times, of_kind):
            for name, seconds in zip(PHASES, phases, strict=True):
                getattr(times, name).add(seconds * 1000, weight)
            times.size.add(self.size, weight)

"""Which limit holds for whom, and who shares it (Kafka's client quotas). Pure: the time is passed.

The most specific limit wins, and says who shares it:

    user and client, user and any client, any user and client, any user and any client   one user's one client
    user, any user                                                                       one user's clients together
    client, any client                                                                   one client id of all users

So a limit for any user holds for each of them, not for all together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from kbroker.security.rates import Rate, TokenBucket

PRODUCED, FETCHED, REQUESTED = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATED, CONNECTED = "controller_mutation_rate", "connection_creation_rate"
CLIENT_KEYS = {PRODUCED: int, FETCHED: int, REQUESTED: float, MUTATED: float}
IP_KEYS = {CONNECTED: int}
ANY = "<default>"
"""Instead of a name: every user, every client, every address that has no limit of its own."""
LONGEST_CLIENT_ID = 1_000
"""Of what is remembered; whoever sends more is counted with others who begin alike."""
MOST_COUNTERS = 10_000
"""Counters of clients; one that was not asked for longest goes first."""


class Entity(NamedTuple):
    """Whom a limit is for; None: it says nothing of them."""

    user: str | None
    client: str | None


class Counter:
    """What one user, client, or one's client has used."""

    __slots__ = ("bucket", "limit", "rate")

    def __init__(self, limit: float, rate: Rate, bucket: TokenBucket) -> None:
        self.limit = limit
        self.rate = rate
        self.bucket = bucket


class ClientQuotas:
    """The limits and what was used of them."""

    def __init__(self, samples: int, sample_ms: int, burst_s: float) -> None:
        self.samples = samples
        self.sample_ms = sample_ms
        self._burst_s = burst_s
        self.is_used = False
        """Whether there is, or was, any limit: nothing is counted before."""
        self._limits: dict[Entity, dict[str, float]] = {}
        self._counters: dict[tuple[str, Entity], Counter] = {}
        self._found: dict[tuple[str, str, str], Counter | None] = {}

    def replace(self, entity: Entity, limits: Mapping[str, float]) -> None:
        """These are an entity's limits now; none: it has none of its own."""
        if limits:
            self._limits[entity] = dict(limits)
            self.is_used = True
        else:
            self._limits.pop(entity, None)
        self._found.clear()

    def entities(self) -> dict[Entity, dict[str, float]]:
        """Return all limits."""
        return self._limits

    def counter(self, kind: str, user: str, client: str) -> Counter | None:
        """Return what counts for a user's client; None where nothing limits it."""
        client = client[:LONGEST_CLIENT_ID]
        key = kind, user, client
        if key not in self._found:
            if len(self._found) >= MOST_COUNTERS:
                self._found.clear()
            self._found[key] = self._find(kind, user, client)
        return self._found[key]

    def _find(self, kind: str, user: str, client: str) -> Counter | None:
        for entity in (
            Entity(user, client),
            Entity(user, ANY),
            Entity(user, None),
            Entity(ANY, client),
            Entity(ANY, ANY),
            Entity(ANY, None),
            Entity(None, client),
            Entity(None, ANY),
        ):
            limit = self._limits.get(entity, {}).get(kind)
            if limit is not None:
                shared = Entity(None if entity.user is None else user, None if entity.client is None else client)
                return self._shared(kind, shared, limit)
        return None

    def _shared(self, kind: str, who: Entity, limit: float) -> Counter:
        key = kind, who
        counter = self._counters.pop(key, None)
        if counter is None:
            while len(self._counters) >= MOST_COUNTERS:
                del self._counters[next(iter(self._counters))]
            counter = Counter(limit, Rate(self.samples, self.sample_ms), TokenBucket(self._burst_s))
        self._counters[key] = counter
        counter.limit = limit
        return counter

    def record(self, kind: str, user: str, client: str, value: float, now_ms: float) -> int:
        """Count something; returns for how many milliseconds its client has to wait."""
        counter = self.counter(kind, user, client)
        if counter is None:
            return 0
        counter.rate.record(value, now_ms)
        delay_ms = counter.rate.delay_ms(counter.limit, now_ms)
        return min(delay_ms, self.sample_ms) if kind == REQUESTED else delay_ms

    def take_back(self, kind: str, user: str, client: str, value: float, now_ms: float) -> None:
        """What was counted does not happen after all."""
        counter = self.counter(kind, user, client)
        if counter is not None:
            counter.rate.record(-value, now_ms)

    def most_at_once(self, kind: str, user: str, client: str) -> int | None:
        """Return what may be used at once without waiting beyond the windows; None: there is no limit."""
        counter = self.counter(kind, user, client)
        if counter is None:
            return None
        return int(counter.limit * max(1, self.samples - 1) * self.sample_ms / 1000)


def valid_limit(kinds: Mapping[str, type], key: str, value: float) -> str | None:
    """Say what is wrong with a limit."""
    kind = kinds.get(key)
    if kind is None:
        return f"Invalid configuration key {key}"
    if not math.isfinite(value):
        return f"{key} must be a number, and not without end"
    most = 2**63 if kinds is CLIENT_KEYS else 2**31 - 1
    if kind is int and (abs(value - round(value)) > 1e-6 or value > most):
        return (
            f"Configuration {key} must be a Long value" if kinds is CLIENT_KEYS else f"{key} must be an Integer value"
        )
    return f"{key} must not be negative" if value < 0 else None


def parsed(kinds: Mapping[str, type], config: Mapping[str, str]) -> dict[str, float]:
    """Read an entity's limits as they are stored; what is none (credentials, say, or infinity) is left out."""
    limits = {}
    for key, text in config.items():
        if key in kinds:
            try:
                limit = float(text)
            except ValueError:
                continue
            if math.isfinite(limit):
                limits[key] = limit
    return limits


def stored(kinds: Mapping[str, type], key: str, value: float) -> str:
    """Return a limit as it is stored."""
    return str(round(value)) if kinds[key] is int else str(float(value))

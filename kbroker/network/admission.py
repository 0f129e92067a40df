"""Who may connect, and when (pure: the clock is passed).

max.connections                   all connections together; the brokers' own listener is exempt, where there is
                                  another one: a broker that has no room for clients still speaks with its peers
listener.name.X.max.connections   those of one listener
max.connection.creation.rate      accepted per second, over the windows of Kafka's quotas, exempt as above; also for one
                                  listener; the next one waits to be accepted
connection_creation_rate          the same for one address (`kbroker quota`); who comes too soon is held unserved, then
                                  closed, and does not count for the others
max.connections.per.ip            from one address; more are closed at once
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf

from kbroker.network.limits import NO_LIMIT, ServerLimits
from kbroker.security.quotas import ANY
from kbroker.security.rates import Rate

MOST_ADDRESSES = 10_000
"""Addresses whose connections are counted; one that came in longest ago goes first."""


class Admission:
    """Counts connections; says how long a listener has to wait before the next one."""

    def __init__(self, limits: ServerLimits, ip_rates: Mapping[str, float] | None = None) -> None:
        self.limits = limits
        self.ip_rates: Mapping[str, float] = {} if ip_rates is None else ip_rates
        """Address, or ANY -> connections per second; may change at any time."""
        self.total = 0
        self._of_listener: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()
        self._rates: dict[str, Rate] = {}
        """By listener, and under "" what counts for the whole broker."""
        self._address_rates: dict[str, Rate] = {}

    def is_privileged(self, listener: str) -> bool:
        """Whether it is the brokers' own listener."""
        return listener == self.limits.privileged_listener

    def pause_s(self, listener: str, now: float) -> float:
        """Return for how long the listener has to wait: 0 for not at all, inf for until somebody leaves."""
        limits = self.limits
        if self.total >= limits.max_connections and not self.is_privileged(listener):
            return inf
        if self._of_listener[listener] >= limits.listener_max_connections.get(listener, inf):
            return inf
        delays = [self._rate(key).delay_ms(limit, now * 1000) for key, limit in self._rate_limits(listener)]
        return min(max(delays, default=0), limits.rate_sample_ms) / 1000

    def _rate_limits(self, listener: str) -> list[tuple[str, float]]:
        limits = self.limits
        found = [(listener, limits.listener_creation_rates.get(listener, NO_LIMIT))]
        if not self.is_privileged(listener):
            found.append(("", limits.max_creation_rate))
        return [each for each in found if each[1] < NO_LIMIT]

    def _rate(self, key: str) -> Rate:
        if key not in self._rates:
            self._rates[key] = Rate(self.limits.rate_samples, self.limits.rate_sample_ms)
        return self._rates[key]

    def accepted(self, listener: str, host: str, now: float) -> float:
        """Count a connection for the rates; returns for how long it is to be held before it is closed, 0: it is not."""
        held_s = self._held_s(host, now)
        if not held_s:
            for key, _ in self._rate_limits(listener):
                self._rate(key).record(1, now * 1000)
        return held_s

    def _held_s(self, host: str, now: float) -> float:
        if not self.ip_rates:
            return 0.0
        limit = self.ip_rates.get(host, self.ip_rates.get(ANY, NO_LIMIT))
        if limit >= NO_LIMIT:
            return 0.0
        rate = self._address_rates.pop(host, None)
        if rate is None:
            rate = Rate(self.limits.rate_samples, self.limits.rate_sample_ms)
            while len(self._address_rates) >= MOST_ADDRESSES:
                del self._address_rates[next(iter(self._address_rates))]
        self._address_rates[host] = rate
        rate.record(1, now * 1000)
        delay_ms = rate.delay_ms(limit, now * 1000)
        if delay_ms:
            rate.record(-1, now * 1000)
        return min(delay_ms, self.limits.rate_sample_ms) / 1000

    def refusal(self, host: str) -> str | None:
        """Say why nobody else from this address may come in, if so."""
        limit = self.limits.per_ip_overrides.get(host, self.limits.max_connections_per_ip)
        return f"it has {limit}, as many as allowed" if self._of_address[host] >= limit else None

    def enter(self, listener: str, host: str) -> bool:
        """Count a connection; False when there are more than max.connections now: a client has to go for it."""
        self.total += 1
        self._of_listener[listener] += 1
        self._of_address[host] += 1
        return self.total <= self.limits.max_connections

    def leave(self, listener: str, host: str) -> None:
        """A connection has ended."""
        self.total -= 1
        self._of_listener[listener] -= 1
        self._of_address[host] -= 1
        if not self._of_address[host]:
            del self._of_address[host]

"""Who may connect, and when (pure: the clock is passed).

max.connections                   all connections together; the brokers' own listener is exempt, where there is
                                  another one: a broker that has no room for clients still speaks with its peers
listener.name.X.max.connections   those of one listener
max.connection.creation.rate      accepted in one second, exempt as above; also for one listener
max.connections.per.ip            from one address; more are closed at once, while all others wait to be accepted
"""

from __future__ import annotations

from collections import Counter
from math import inf

from kbroker.network.limits import ServerLimits


class Admission:
    """Counts connections; says how long a listener has to wait before the next one."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.total = 0
        self._of_listener: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()
        self._second_ends = 0.0
        self._accepted: Counter[str] = Counter()
        """In this second: by listener, and under "" those that count for the whole broker."""

    def is_privileged(self, listener: str) -> bool:
        """Whether it is the brokers' own listener."""
        return listener == self.limits.privileged_listener

    def pause_s(self, listener: str, now: float) -> float:
        """Return for how long the listener has to wait: 0 for not at all, inf for until somebody leaves."""
        limits = self.limits
        privileged = self.is_privileged(listener)
        if self.total >= limits.max_connections and not privileged:
            return inf
        if self._of_listener[listener] >= limits.listener_max_connections.get(listener, inf):
            return inf
        if now >= self._second_ends:
            self._second_ends = now + 1
            self._accepted.clear()
        is_fast = self._accepted[listener] >= limits.listener_creation_rates.get(listener, inf)
        if is_fast or (self._accepted[""] >= limits.max_creation_rate and not privileged):
            return self._second_ends - now
        return 0.0

    def accepted(self, listener: str) -> None:
        """Count a connection for the rates, whatever becomes of it."""
        self._accepted[listener] += 1
        if not self.is_privileged(listener):
            self._accepted[""] += 1

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

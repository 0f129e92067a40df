"""Which signals ask a server to stop in order: a broker, a cluster for development, a ZooKeeper."""

import signal
import time
from collections.abc import Callable
from math import inf

TOGETHER_S = 0.5
"""Signals that come within so many seconds are one request."""


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGINT, SIGTERM, and SIGHUP (its terminal was closed), as a JVM's; not where nohup has the process ignore it."""
    always = (signal.SIGINT, signal.SIGTERM)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)


class StopRequests:
    """The signals that have asked a server to stop; true once there is one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self._insists_from = inf
        self._asked = False

    def __bool__(self) -> bool:
        return self._asked

    def add(self, number: int) -> bool:
        """Note a signal; returns whether to end at once, as somebody asks again.

        A closed terminal sends SIGHUP, more than once, unasked; and who passes a signal on may do so twice: `timeout`
        of GNU's sends it to its child and to the child's group.
        """
        self._asked = True
        if number == signal.SIGHUP:
            return False
        now = self._clock()
        self._insists_from = min(self._insists_from, now + TOGETHER_S)
        return now >= self._insists_from

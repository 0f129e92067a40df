"""Which signals ask a server to stop in order: a broker, a cluster for development, a ZooKeeper."""

import signal
from collections.abc import Sequence


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGINT, SIGTERM, and SIGHUP (its terminal was closed), as a JVM's; not where nohup has the process ignore it."""
    always = (signal.SIGINT, signal.SIGTERM)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)


def insists(received: Sequence[int]) -> bool:
    """Whether to end at once: somebody asks twice. A closed terminal sends SIGHUP, more than once, unasked."""
    return sum(number != signal.SIGHUP for number in received) > 1

"""Which signals ask a server to stop in order: a broker, a cluster for development, a ZooKeeper."""

import signal


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGINT, SIGTERM, and SIGHUP (its terminal was closed), as a JVM's; not where nohup has the process ignore it."""
    always = (signal.SIGINT, signal.SIGTERM)
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*always, signal.SIGHUP)


def insists(number: int) -> bool:
    """Whether a second signal shall end the process at once: a closed terminal sends SIGHUP more than once."""
    return number != signal.SIGHUP

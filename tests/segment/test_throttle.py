"""A rate is held over all threads, and nobody waits once it is to stop."""

import threading
import time

from kbroker.segment.throttle import Throttle


class Waits(threading.Event):
    """Notes for how long it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.noted.append(timeout)
        return super().wait(timeout)


def test_more_than_the_rate_waits_and_what_is_short_is_saved_up() -> None:
    throttle, stopping = Throttle(1_000_000), Waits()
    begun = time.monotonic()
    throttle.take(50_000, stopping)
    assert not stopping.noted
    throttle.take(150_000, stopping)
    assert time.monotonic() - begun >= 0.19


def test_threads_share_the_rate() -> None:
    throttle, stopping = Throttle(1_000_000), threading.Event()
    begun = time.monotonic()
    threads = [threading.Thread(target=throttle.take, args=(100_000, stopping)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    # One that begins late, with less than the slack to wait, does not.
    assert time.monotonic() - begun >= 0.19


def test_who_stops_does_not_wait() -> None:
    throttle, stopping = Throttle(1), threading.Event()
    stopping.set()
    begun = time.monotonic()
    throttle.take(1_000_000, stopping)
    assert time.monotonic() - begun < 60


def test_without_a_limit_nobody_waits() -> None:
    throttle, stopping = Throttle(float("inf")), Waits()
    throttle.take(1 << 40, stopping)
    assert not stopping.noted

"""Scrubs that somebody asks for: begun by the first question, told by each, given up when nobody asks any more."""

import threading
from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.segment.log import Log
from kbroker.segment.log_manager import LogManager
from kbroker.segment.log_segment import LogSegment
from kbroker.segment.scrubber import LogScrubber, LogScrubberSettings, Look
from kbroker.segment.wanted_scrubs import MOST, MOST_KNOWN, PATIENCE_S, WantedScrubs
from tests.segment.test_cleaner import managed, until
from tests.segment.test_scrubber import PLAIN, filled, flip, place_of, segment_file

FOREVER = LogScrubberSettings(log_scrub_max_bytes_per_second=1)


class Now:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    """Two logs, with closed segments each."""
    manager = managed(tmp_path, "orders", "bills", config=PLAIN)
    for log in manager.logs.values():
        filled(log)
    return manager


def ident(number: int) -> bytes:
    return bytes(15) + bytes([number + 1])


def segments(*logs: Log) -> int:
    return sum(len(log.segments) - 1 for log in logs)


def test_all_closed_segments_are_read_and_what_is_damaged_is_told(manager: LogManager) -> None:
    log = manager.logs["orders", 0]
    file = segment_file(log)
    flip(file, place_of(file, 3) + 17)
    told: list[object] = []
    scrubs = WantedScrubs(manager, LogScrubber(manager, on_damage=told.append))
    until(lambda: scrubs.ask(ident(0), None).is_over)
    found = scrubs.ask(ident(0), None)
    assert found.checked_segments == found.segments == segments(*manager.logs.values())
    assert found.checked_bytes == found.bytes > 0
    assert [(each.log, each.position) for each in found.damages] == [(log, place_of(file, 3))]
    assert told == found.damages
    scrubs.stop()


def test_a_segment_that_is_gone_is_told(manager: LogManager) -> None:
    log = manager.logs["orders", 0]
    filled(log)
    log.disk.segments = (log.segments[0], *log.segments[2:])
    scrubs = WantedScrubs(manager, LogScrubber(manager))
    until(lambda: scrubs.ask(ident(0), None).is_over)
    (hole,) = scrubs.ask(ident(0), None).damages
    assert (hole.segment, hole.end_offset, hole.is_hole) == (log.segments[0], log.segments[1].base_offset, True)
    scrubs.stop()


def test_only_the_logs_asked_for_are_read(manager: LogManager) -> None:
    scrubs = WantedScrubs(manager, LogScrubber(manager))
    until(lambda: scrubs.ask(ident(0), {"bills": {0, 7}, "none": {0}, "orders": {5}}).is_over)
    assert scrubs.ask(ident(0), {}).segments == segments(manager.logs["bills", 0])
    assert scrubs.ask(ident(1), {"none": {0}}).is_over
    scrubs.stop()


def test_one_that_nobody_asks_about_is_given_up_and_the_next_gets_its_turn(manager: LogManager) -> None:
    clock, begun = Now(), threading.Event()

    class Slow(LogScrubber):
        """Takes longer for a segment than anybody waits, but for who has the second id."""

        def look_at(self, owner: Log, segment: LogSegment, stopping: threading.Event) -> Look:
            begun.wait(20)
            clock.seconds += PATIENCE_S + 1
            scrubs.ask(ident(1), None)
            return Look(is_read=True)

    scrubs = WantedScrubs(manager, Slow(manager), clock)
    first, second = scrubs.ask(ident(0), None), scrubs.ask(ident(1), {"bills": {0}})
    begun.set()
    until(lambda: first.is_over and second.is_over)
    assert (first.checked_segments, second.checked_segments) == (1, second.segments)
    scrubs.stop()


def test_so_many_may_be_under_way_and_those_that_are_over_make_room(manager: LogManager) -> None:
    clock = Now()
    scrubs = WantedScrubs(manager, LogScrubber(manager, FOREVER), clock)
    for number in range(MOST):
        scrubs.ask(ident(number), None if number else {})
    scrubs.ask(ident(MOST), None)
    with pytest.raises(KafkaError) as refused:
        scrubs.ask(ident(MOST + 1), None)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    scrubs.ask(ident(1), None)
    scrubs.stop()


def test_one_that_is_over_is_told_of_still_when_many_others_were_asked_for(manager: LogManager) -> None:
    clock = Now()
    scrubs = WantedScrubs(manager, LogScrubber(manager), clock)
    first = scrubs.ask(ident(0), {})
    for number in range(1, MOST_KNOWN):
        clock.seconds += 0.1
        scrubs.ask(ident(number), {})
    assert scrubs.ask(ident(0), {}) is first
    second = scrubs.ask(ident(1), {})
    clock.seconds += 0.1
    third = scrubs.ask(ident(2), {})
    scrubs.ask(ident(MOST_KNOWN), {})
    assert scrubs.ask(ident(2), {}) is third
    clock.seconds += PATIENCE_S + 1
    assert scrubs.ask(ident(MOST_KNOWN + 1), {}) not in (first, second)
    assert len(scrubs._known) == 1
    scrubs.stop()


def test_what_could_not_be_read_does_not_count_as_checked(manager: LogManager) -> None:
    failed = manager.logs["orders", 0]
    failed.mark_failed("its directory is offline")
    scrubs = WantedScrubs(manager, LogScrubber(manager))
    until(lambda: scrubs.ask(ident(0), None).is_over)
    found = scrubs.ask(ident(0), None)
    assert found.segments == segments(*manager.logs.values())
    assert found.checked_segments == segments(manager.logs["bills", 0])
    scrubs.stop()

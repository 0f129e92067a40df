"""Tests for kbroker.verify.availability: gaps, recoveries, and what happened when."""

from kbroker.verify.availability import measure_availability
from kbroker.verify.versions import find_versions
from tests.kbroker.verify.written import Written, read, sent

SECOND = 10**9


def test_gaps_and_recoveries_are_those_of_the_slowest_partition() -> None:
    history = Written()
    for offset, (key, second) in enumerate((("x", 1), ("x", 2), ("y", 2), ("y", 3), ("x", 8), ("y", 5))):
        history.begin(key, "send", [], time=second * SECOND)
        history.end(key, "send", sent(key, [offset, offset]), time=second * SECOND)
    history.end("nemesis", "cut", [], "info", time=3 * SECOND)
    history.end("nemesis", "heal", [], "info", time=4 * SECOND)
    history.end("nemesis", "cut", [], "info", time=6 * SECOND)
    history.end("nemesis", "heal", [], "info", time=7 * SECOND)
    found = measure_availability(history.columns, find_versions(history.columns))
    assert [(gap.key, gap.begin_s, gap.seconds) for gap in found.gaps] == [("x", 2, 6), ("y", 3, 2)]
    assert [(each.healed_s, each.key, each.seconds) for each in found.recoveries] == [(4, "x", 4), (7, "y", None)]
    assert found.timeline is not None
    assert found.timeline.faults == [(3, 4, "cut"), (6, 7, "cut")]


def test_what_is_acknowledged_and_not_yet_read_is_the_lag() -> None:
    history = Written()
    history.do(0, "send", sent("x", [0, 1], [1, 2], [2, 3]))
    history.do(1, "poll", read(x=[[0, 1]]))
    history.do(1, "poll", read(x=[[1, 2], [2, 3]]))
    history.do(2, "poll", read(x=[[0, 1]]))
    timeline = measure_availability(history.columns, find_versions(history.columns)).timeline
    assert timeline is not None
    assert (sum(timeline.sent), sum(timeline.read), max(timeline.lag), timeline.lag[-1]) == (3, 4, 3, 0)


def test_an_empty_history_has_no_figures() -> None:
    columns = Written().columns
    found = measure_availability(columns, find_versions(columns))
    assert (found.gaps, found.recoveries, found.worst_lag) == ([], [], 0)

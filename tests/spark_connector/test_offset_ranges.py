"""From wanted starts and ends and the topics' bounds to the ranges that Spark's tasks read."""

from kbroker.spark_connector.offset_ranges import Bounds, OffsetRange, gather, plan_ranges, split_ranges

BOUNDS = {("t", 0): Bounds(5, 20), ("t", 1): Bounds(0, 0), ("t", 2): Bounds(0, 7)}
EARLIEST = {place: each.earliest for place, each in BOUNDS.items()}
LATEST = {place: each.latest for place, each in BOUNDS.items()}


def test_earliest_to_latest_reads_all_that_is_there_and_leaves_out_empty_partitions() -> None:
    ranges, lost = plan_ranges(EARLIEST, LATEST, BOUNDS, {"t": b"i" * 16})
    assert ranges == [OffsetRange("t", 0, 5, 20, b"i" * 16), OffsetRange("t", 2, 0, 7, b"i" * 16)]
    assert lost == []


def test_wanted_offsets_that_aged_out_are_cut_and_reported() -> None:
    ranges, lost = plan_ranges({("t", 0): 2, ("t", 1): 0, ("t", 2): 3}, LATEST, BOUNDS)
    assert ranges == [OffsetRange("t", 0, 5, 20), OffsetRange("t", 2, 3, 7)]
    assert [str(loss) for loss in lost] == ["t-0: offsets [2, 20) were asked for, [5, 20) are there"]


def test_where_nothing_is_wanted_nothing_is_missing() -> None:
    ranges, lost = plan_ranges(wanted := {**EARLIEST, ("t", 0): 2}, wanted, BOUNDS)
    assert (ranges, lost) == ([], [])


def test_an_end_beyond_the_log_is_cut_and_reported() -> None:
    ranges, lost = plan_ranges(EARLIEST, {**LATEST, ("t", 0): 21}, BOUNDS)
    assert OffsetRange("t", 0, 5, 20) in ranges
    assert len(lost) == 1


def test_a_start_beyond_the_log_is_reported_not_silently_empty() -> None:
    _, lost = plan_ranges({**EARLIEST, ("t", 0): 99}, LATEST, BOUNDS)
    assert [loss.partition for loss in lost] == [0]


def test_ranges_are_cut_until_none_is_too_long_and_nothing_is_lost_between_them() -> None:
    pieces = split_ranges([OffsetRange("t", 0, 5, 30), OffsetRange("t", 1, 0, 3)], None, 10, {})
    assert [(each.partition, each.start, each.end) for each in pieces] == [
        (0, 5, 13),
        (0, 13, 21),
        (0, 21, 30),
        (1, 0, 3),
    ]


def test_the_partition_with_the_most_bytes_gets_the_most_tasks() -> None:
    ranges = [OffsetRange("t", 0, 0, 1000), OffsetRange("t", 1, 0, 1000)]
    pieces = split_ranges(ranges, 8, None, {("t", 0): 1.0, ("t", 1): 3.0})
    assert [sum(each.partition == number for each in pieces) for number in (0, 1)] == [2, 6]
    assert len(split_ranges([OffsetRange("t", 0, 0, 3)], 8, None, {})) == 3, "one record is never cut"
    assert split_ranges([], 8, None, {}) == []


def test_small_ranges_share_a_task_and_large_or_unknown_ones_have_their_own() -> None:
    ranges = [OffsetRange("t", number, 0, 10) for number in range(6)]
    density = {("t", 0): 4.0, ("t", 1): 4.0, ("t", 2): 4.0, ("t", 3): 500.0, ("t", 5): 1.0}
    shares = gather(ranges, density, 100.0)
    assert [[each.partition for each in share] for share in shares] == [[0, 1], [2], [3], [4], [5]]
    assert gather([], density, 100.0) == []

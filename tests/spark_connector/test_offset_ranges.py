"""From the options' wishes and the topics' bounds to the ranges that are read."""

import pytest

from spark_connector.offset_ranges import (
    EARLIEST,
    LATEST,
    Bounds,
    OffsetRange,
    OffsetSpec,
    check_spec_covers,
    parse_offset_spec,
    plan_ranges,
)

BOUNDS = {("t", 0): Bounds(5, 20), ("t", 1): Bounds(0, 0), ("t", 2): Bounds(0, 7)}


def test_earliest_to_latest_reads_all_that_is_there_and_leaves_out_empty_partitions() -> None:
    ranges, lost = plan_ranges(OffsetSpec(EARLIEST), OffsetSpec(LATEST), BOUNDS)
    assert ranges == [OffsetRange("t", 0, 5, 20), OffsetRange("t", 2, 0, 7)]
    assert lost == []


def test_wanted_offsets_that_aged_out_are_cut_and_reported() -> None:
    starting = OffsetSpec(None, {("t", 0): 2, ("t", 1): 0, ("t", 2): 3})
    ranges, lost = plan_ranges(starting, OffsetSpec(LATEST), BOUNDS)
    assert ranges == [OffsetRange("t", 0, 5, 20), OffsetRange("t", 2, 3, 7)]
    assert [str(loss) for loss in lost] == ["t-0: offsets [2, 20) were asked for, [5, 20) are there"]


def test_an_end_beyond_the_log_is_cut_and_reported() -> None:
    ending = OffsetSpec(None, {("t", 0): 21, ("t", 1): LATEST, ("t", 2): LATEST})
    ranges, lost = plan_ranges(OffsetSpec(EARLIEST), ending, BOUNDS)
    assert OffsetRange("t", 0, 5, 20) in ranges
    assert len(lost) == 1


def test_a_start_beyond_the_log_is_reported_not_silently_empty() -> None:
    starting = OffsetSpec(None, {("t", 0): 99, ("t", 1): EARLIEST, ("t", 2): EARLIEST})
    _, lost = plan_ranges(starting, OffsetSpec(LATEST), BOUNDS)
    assert [loss.partition for loss in lost] == [0]


def test_offsets_per_partition_must_name_every_partition_and_no_other() -> None:
    spec = parse_offset_spec("startingOffsets", '{"t":{"0":1,"9":1}}')
    with pytest.raises(ValueError, match=r"missing t-1, t-2; not read: t-9"):
        check_spec_covers("startingOffsets", spec, BOUNDS)
    check_spec_covers("startingOffsets", parse_offset_spec("startingOffsets", "latest"), BOUNDS)

"""Words, offsets and times that say where a read begins and ends."""

import pytest

from kbroker.protocol.messages.offsets import EARLIEST, LATEST
from kbroker.spark_connector.offset_ranges import Bounds
from kbroker.spark_connector.offset_specs import OffsetSpec, parse_offsets, parse_timestamps

BOUNDS = {("t", 0): Bounds(5, 20), ("t", 1): Bounds(0, 7)}


def test_words_and_numbers_become_offsets() -> None:
    assert parse_offsets("o", " Earliest ").resolve(BOUNDS, {}) == {("t", 0): 5, ("t", 1): 0}
    assert parse_offsets("o", '{"t":{"0":-1,"1":3}}').resolve(BOUNDS, {}) == {("t", 0): 20, ("t", 1): 3}


def test_times_are_looked_up_and_the_end_taken_where_nothing_is_so_young() -> None:
    spec = parse_timestamps("startingTimestamp", "1000", latest_when_none=True)
    assert spec.times(BOUNDS) == {("t", 0): 1000, ("t", 1): 1000}
    assert spec.resolve(BOUNDS, {("t", 0): 9, ("t", 1): -1}) == {("t", 0): 9, ("t", 1): 7}
    each = parse_timestamps("startingOffsetsByTimestamp", '{"t":{"0":5,"1":6}}', latest_when_none=False)
    assert each.times(BOUNDS) == {("t", 0): 5, ("t", 1): 6}
    with pytest.raises(ValueError, match=r"t-1 has no record at or after 6 ms.*Strategy=latest"):
        each.resolve(BOUNDS, {("t", 0): 9, ("t", 1): -1})


def test_offsets_per_partition_must_name_every_partition_and_no_other() -> None:
    spec = parse_offsets("startingOffsets", '{"t":{"0":1,"9":1}}')
    with pytest.raises(ValueError, match=r"startingOffsets must name .* missing t-1; not read: t-9"):
        spec.check_covers(BOUNDS)
    OffsetSpec("o", LATEST).check_covers(BOUNDS)


def test_offsets_may_name_an_assigned_partition_that_is_gone() -> None:
    spec = parse_offsets("startingOffsets", '{"t":{"0":1,"1":2,"9":1}}')
    spec.check_covers(BOUNDS, [*BOUNDS, ("t", 9)])
    with pytest.raises(ValueError, match="missing none; not read: t-9"):
        spec.check_covers(BOUNDS, BOUNDS)
    with pytest.raises(ValueError, match="missing t-0; not read: none"):
        parse_offsets("o", '{"t":{"1":2,"9":1}}').check_covers(BOUNDS, [("t", 0), ("t", 9)])


@pytest.mark.parametrize("text", ["yesterday", "[]", '{"t":7}', '{"t":{"0":-3}}', '{"t":{"x":3}}', '{"t":{"0":true}}'])
def test_what_is_no_offset_is_refused_with_the_options_name(text: str) -> None:
    with pytest.raises(ValueError, match="startingOffsets is"):
        parse_offsets("startingOffsets", text)
    with pytest.raises(ValueError, match="endingTimestamp is"):
        parse_timestamps("endingTimestamp", text, latest_when_none=True)
    assert parse_offsets("o", '{"t":{"0":-2}}').by_partition == {("t", 0): EARLIEST}


@pytest.mark.parametrize("text", [str(1 << 63), "9" * 5_000, "²", "\u0661", '{"t":{"0":9223372036854775808}}'])
def test_a_time_that_is_no_64_bit_number_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"^startingTimestamp is '.*: it must be milliseconds since 1970"):
        parse_timestamps("startingTimestamp", text, latest_when_none=True)


def test_the_largest_numbers_are_times_and_offsets() -> None:
    largest = (1 << 63) - 1
    assert parse_timestamps("startingTimestamp", str(largest), latest_when_none=True).default == largest
    assert parse_offsets("o", f'{{"t":{{"0":{largest}}}}}').by_partition == {("t", 0): largest}
    with pytest.raises(ValueError, match="is not an offset"):
        parse_offsets("o", f'{{"t":{{"0":{largest + 1}}}}}')

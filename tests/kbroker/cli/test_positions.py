"""Reading `-o`."""

import time
from datetime import UTC, datetime

import pytest

from kbroker.cli.positions import StartPosition, parse_position, parse_range, start_offset


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("start", StartPosition("start")),
        ("beginning", StartPosition("start")),
        ("end", StartPosition("end")),
        ("0", StartPosition("offset", 0)),
        ("1234", StartPosition("offset", 1234)),
        ("-10", StartPosition("before_end", 10)),
        ("@1388534400000", StartPosition("timestamp", 1388534400000)),
        ("s@5", StartPosition("timestamp", 5)),
        ("@2014-01-01T00:00:00+00:00", StartPosition("timestamp", 1388534400000)),
    ],
)
def test_each_of_kcats_notations_is_read(text: str, position: StartPosition) -> None:
    assert parse_position(text) == position


def test_a_time_without_a_zone_is_local() -> None:
    local = datetime(2014, 1, 1, 12).astimezone(UTC)
    assert parse_position("@2014-01-01T12:00").value == local.timestamp() * 1000


@pytest.mark.parametrize(("text", "seconds"), [("@-90s", 90), ("@-30m", 1800), ("@-12h", 43200), ("s@-2w", 1209600)])
def test_a_time_may_be_so_long_ago(text: str, seconds: int) -> None:
    before = time.time()
    value = parse_position(text).value / 1000
    assert before - seconds - 0.01 <= value <= time.time() - seconds


@pytest.mark.parametrize("text", ["@-99999999999d", "@-3000w", "@1960-01-01"])
def test_a_time_before_all_records_is_the_first_there_can_be(text: str) -> None:
    assert parse_position(text) == StartPosition("timestamp", 0)
    assert parse_range(["e@1960-01-01T00:00Z"])[1] == 0


def test_a_time_after_all_records_is_the_last_there_can_be() -> None:
    assert parse_position("@99999999999999999999") == StartPosition("timestamp", 2**63 - 1)


@pytest.mark.parametrize("text", ["", "middle", "1.5", "@", "@yesterday", "@-1", "@-1y", "@1h"])
def test_anything_else_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="use "):
        parse_position(text)


@pytest.mark.parametrize(
    ("text", "offset"),
    [("start", 100), ("end", 200), ("150", 150), ("5", 100), ("999", 200), ("-10", 190), ("-1000", 100), ("@7", 170)],
)
def test_the_first_offset_lies_within_the_log(text: str, offset: int) -> None:
    assert start_offset(parse_position(text), earliest=100, latest=200, at_timestamp=170) == offset


def test_a_time_younger_than_all_records_means_the_end() -> None:
    assert start_offset(parse_position("@7"), earliest=100, latest=200, at_timestamp=None) == 200

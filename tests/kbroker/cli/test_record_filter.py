"""Which records `topic consume` is asked for."""

import pyarrow as pa
import pytest
import typer

from kbroker.cli.record_filter import parse_filter
from kbroker.client.arrow import SCHEMA_WITH_HEADERS

RECORD = (b"UA", b"delayed: 42 min", [("source", b"radar"), ("seen", None)])


@pytest.mark.parametrize(
    ("key", "grep", "headers", "is_wanted"),
    [
        ("UA", None, (), True),
        ("U", None, (), False),
        (None, r"\d+ min$", (), True),
        (None, "(?i)DELAYED", (), True),
        (None, "DELAYED", (), False),
        (None, None, ("source",), True),
        (None, None, ("source=radar", "seen"), True),
        (None, None, ("source=eye",), False),
        (None, None, ("seen=x",), False),
        (None, None, ("other",), False),
        ("UA", "nothing", (), False),
    ],
)
def test_all_that_is_asked_for_must_hold(
    key: str | None, grep: str | None, headers: tuple[str, ...], is_wanted: bool
) -> None:
    wanted = parse_filter(key, grep, headers)
    assert wanted is not None
    assert wanted.holds(*RECORD) is is_wanted
    assert not wanted.holds(None, None, [])
    row = {"key": RECORD[0], "value": RECORD[1], "headers": [{"key": name, "value": text} for name, text in RECORD[2]]}
    batch = pa.RecordBatch.from_pylist([row, {"key": None, "value": None, "headers": None}], SCHEMA_WITH_HEADERS)
    assert wanted.apply(batch)["key"].to_pylist() == ([b"UA"] if is_wanted else [])


@pytest.mark.parametrize(
    ("grep", "value", "is_wanted"),
    [
        ("[äö]", "é".encode(), False),
        ("[äö]", "schön".encode(), True),
        ("(?i)ÜRICH", "zürich".encode(), True),
        ("^.$", "ü".encode(), True),
        ("a.b", b"a\xffb", True),
        ("^[^a]+b$", b"\xff\xfeb", True),
        ("ü", b"\xff\xc3\xbc", True),
    ],
)
def test_a_pattern_means_characters_and_bytes_where_there_are_none(grep: str, value: bytes, is_wanted: bool) -> None:
    wanted = parse_filter(None, grep, ())
    assert wanted is not None
    assert wanted.holds(None, value, []) is is_wanted


def test_no_pattern_takes_longer_than_the_value_is_long() -> None:
    wanted = parse_filter(None, "^(a+)+$", ())
    assert wanted is not None
    assert not wanted.holds(None, b"a" * 100_000 + b"!", [])


def test_nothing_asked_for_is_no_filter_and_nonsense_a_usage_error() -> None:
    assert parse_filter(None, None, ()) is None
    with pytest.raises(typer.BadParameter, match="regular expression"):
        parse_filter(None, "(", ())
    with pytest.raises(typer.BadParameter, match="regular expression"):
        parse_filter(None, "(?=ahead)", ())
    with pytest.raises(typer.BadParameter, match="NAME"):
        parse_filter(None, None, ("=x",))

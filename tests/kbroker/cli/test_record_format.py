"""kcat's format strings."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from kbroker.cli.record_format import compile_format, parse_delimiter


@dataclass
class ARecord:
    topic: str = "flights"
    partition: int = 3
    offset: int = 42
    timestamp: int = 1388534400000
    key: bytes | None = b"UA"
    value: bytes | None = b"late"
    headers: Sequence[tuple[str, bytes | None]] = (("source", b"demo"), ("none", None))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (r"%t %p %o %k %v\n", b"flights 3 42 UA late\n"),
        ("%s|%S|%K", b"late|4|2"),
        ("%T", b"1388534400000"),
        ("%h", b"source=demo,none=NULL"),
        ("%R", b"\x00\x00\x00\x04"),
        (r"100%% \t\r\0\\ \x41\x7", b"100% \t\r\0\\ A\x07"),
        ("ümlaut %k", "ümlaut UA".encode()),
        ("", b""),
    ],
)
def test_tokens_and_escapes_are_written(text: str, written: bytes) -> None:
    assert compile_format(text)(ARecord()) == written


def test_a_null_is_nothing_unless_a_word_for_it_is_given() -> None:
    record = ARecord(key=None, value=None)
    assert compile_format("%k|%v|%K|%S")(record) == b"||-1|-1"
    assert compile_format("%k|%v|%R", null=b"NULL")(record) == b"NULL|NULL|\xff\xff\xff\xff"


@pytest.mark.parametrize("text", ["%q", r"\q", "%", "a\\"])
def test_a_wrong_token_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="format"):
        compile_format(text)


def test_a_delimiter_may_be_an_escape_or_a_percent_sign() -> None:
    assert parse_delimiter(r"\t") == b"\t"
    assert parse_delimiter("%") == b"%"
    assert parse_delimiter(r"\x00") == b"\0"

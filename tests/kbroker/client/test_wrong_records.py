from typing import Any

import pytest

from kbroker.client.wrong_records import explained

GIVEN = ValueError("what the builder said")


def words(key: Any = None, value: Any = None, headers: Any = (), timestamp: Any = 0) -> str:
    error = explained(key, value, headers, timestamp, GIVEN)
    assert error is not GIVEN
    return str(error)


@pytest.mark.parametrize("data", [b"", b"x", bytearray(b"x"), memoryview(b"x"), None])
def test_what_is_right_is_not_blamed(data: Any) -> None:
    assert explained(data, data, [("name", data)], 5, GIVEN) is GIVEN
    assert explained(None, None, None, -1, GIVEN) is GIVEN


def test_what_are_no_bytes_is_named_with_what_to_do() -> None:
    how = "encode it, or give the producer a value_serializer"
    assert words(value="text") == f"a value is bytes or None, not the str 'text': {how}"
    assert words(key=5) == "a key is bytes or None, not the int 5: encode it, or give the producer a key_serializer"
    assert words(value="x" * 99) == f"a value is bytes or None, not the str 'xxxxxx{'x' * 50}...: {how}"


def test_a_timestamp_is_a_number_of_milliseconds() -> None:
    assert words(timestamp="now") == "timestamp_ms is a whole number of milliseconds since 1970, not 'now'"
    assert "is more than the 64 bits" in words(timestamp=1 << 64)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"a": b"b"}, "not the dict {'a': b'b'}: list(headers.items())"),
        ("ab", "not the str 'ab'"),
        (5, "not the int 5"),
        ([5], "5 is no such pair"),
        ([("a", b"b", 1)], "('a', b'b', 1) is no such pair"),
        ([(b"a", b"b")], "not (b'a', b'b')"),
        ([("a", "b")], "not ('a', 'b')"),
    ],
)
def test_headers_are_pairs_of_text_and_bytes(headers: Any, said: str) -> None:
    found = words(headers=headers)
    assert found.startswith("headers are a list of (name, value), names text and values bytes or None")
    assert found.endswith(said)

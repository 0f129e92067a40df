import pytest

from kbroker.protocol.java_hash import java_hash, java_map_order, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(1 << 31)),
        ("π😀", 960 * 31**2 + 0xD83D * 31 + 0xDE00),
    ],
)
def test_texts_hash_as_in_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_the_hash_without_an_absolute_value_counts_as_nought() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50


def test_keys_come_by_bucket_and_those_of_one_bucket_as_they_came() -> None:
    assert java_map_order(["banana", "apple", "cherry"], java_hash) == ["banana", "apple", "cherry"]
    assert java_map_order([17, 1, 0, 16], lambda number: number) == [0, 16, 17, 1]
    assert java_map_order(range(24, 0, -1), lambda number: number) == list(range(1, 25))

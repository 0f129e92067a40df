import pytest

from kbroker.coordinator.partitioning import java_hash, partition_for


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

"""Java's sets of characters hold what they hold in Java (tried with jshell 17), or are refused."""

import pytest

from kbroker.spark_connector.java_sets import JavaSet

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("[abc]", "abc"),
        ("[]a]", "]a"),
        ("[a-d]", "abcd"),
        ("[a-]", "a-"),
        ("[a-[x]]", "a-x"),
        ("[a-c[x-z]]", "abcxyz"),
        ("[a-f&&[^bc]]", "adef"),
        ("[a-f&&d-h]", "def"),
        ("[a-f&&[a-c]x]", "abc"),
        ("[a-f&&[^b]&&[^c]]", "adef"),
        ("[a&b]", "a&b"),
        ("[&&b]", "b"),
        (r"[\p{Digit}&&[^5-9]]", "01234"),
        (r"[\P{ASCII}a]", "a"),
        (r"[\x41\u0042\0103\-\]\\]", "ABC-]\\"),
        (r"[\d&&[12]]", "12"),
    ],
)
def test_a_set_holds_what_it_holds_in_java(text: str, held: str) -> None:
    found = JavaSet(text, 0)
    assert found.members == set(held)
    assert found.end == len(text)


def test_a_negated_set_stays_one_that_case_may_be_ignored_in() -> None:
    found = JavaSet("x[^a]", 1)
    assert (found.python(), found.is_mixed) == ("[^a]", False)
    assert JavaSet("[a-b&&c]", 0).python() == "(?!)", "nothing"
    assert JavaSet(f"[{LETTERS}&&[^a-x]]", 0).python() == "[yz]"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[ab", "begins at 0 does not end"),
        ("[a[b]", "begins at 0 does not end"),
        ("[a&&]", "intersection with nothing"),
        ("[a&&&b]", "intersection with nothing"),
        ("[z-a]", "range that ends"),
        (r"[a-\d]", "range that ends"),
        (r"[\p{IsGreek}]", "cannot be had"),
        (r"[\b]", "cannot be had"),
        (r"[\q]", "bad escape"),
        ("[a\\", "begins at 0 does not end"),
        ("[a&&[b]&c]", "behind an intersection"),
    ],
)
def test_what_is_no_set_or_cannot_be_had_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        JavaSet(text, 0)

"""Java's patterns choose the topics that they choose in Java, or are refused."""

import pytest

from kbroker.spark_connector.java_pattern import java_pattern

NAMES = ["flights", "flights.eu", "flightsXeu", "Flights", "f1", "a-b", "abab"]


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("flights.*", ["flights", "flights.eu", "flightsXeu"]),
        (r"\Qflights.eu\E", ["flights.eu"]),
        (r"\Qflights.eu", ["flights.eu"]),
        (r"\p{Lower}+", ["flights", "abab"]),
        (r"[\p{L}]+", ["flights", "flightsXeu", "Flights", "abab"]),
        (r"\p{Upper}\P{Upper}+", ["Flights"]),
        (r"\pL\p{Digit}", ["f1"]),
        (r"(?<pair>ab)\k<pair>", ["abab"]),
        ("(?i)FLIGHTS", ["flights", "Flights"]),
        ("(?:a|f)(?!l).*", ["f1", "a-b", "abab"]),
        ("(?<=)f[]1]", ["f1"]),
        ("[^f&][-{,].", ["a-b"]),
        ("a++b.*", ["abab"]),
        (r"[\Qf^\E].*", ["flights", "flights.eu", "flightsXeu", "f1"]),
        (r"(\\Q|f1)", ["f1"]),
        (r"\\Qx|a[-]b", ["a-b"]),
        (r"[a-c\\Qf]1", ["f1"]),
        (r"\0146\061", ["f1"]),
        ("(?i)[^f].*", ["a-b", "abab"]),
        ("[a-z&&[^f]].*", ["a-b", "abab"]),
    ],
)
def test_a_pattern_chooses_what_it_chooses_in_java(pattern: str, chosen: list[str]) -> None:
    assert [name for name in NAMES if java_pattern(pattern).fullmatch(name)] == chosen


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(?i)[a-z&&[^f]].*", "where case is ignored"),
        (r"(?i)[\P{L}]", "where case is ignored"),
        ("(?P<name>a)", "Python's, and not Java's"),
        ("a{,3}", "Python's, and not Java's"),
        ("(?(1)a|b)", "Python's, and not Java's"),
        (r"\p{IsGreek}", "cannot be had"),
        (r"[\b]", "cannot be had"),
        (r"\R", "bad escape"),
        ("a(?i)b", "global flags"),
        ("(", "unterminated subpattern"),
        ("[" * 2000 + "a" + "]" * 2000, "nested too deeply"),
        ("(" * 2000 + "a" + ")" * 2000, "nested too deeply"),
        ("a{99999999999}", "too large"),
    ],
)
def test_what_the_two_languages_read_otherwise_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        java_pattern(pattern)

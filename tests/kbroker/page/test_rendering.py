import pytest

from kbroker.page.rendering import (
    count_text,
    duration_text,
    environment,
    names_of,
    page_of,
    path_segment,
    query_text,
    rate_text,
    size_text,
    time_text,
)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (200 * 1024, "200 KiB"),
        (3 << 40, "3.0 TiB"),
        (-1, "–"),  # noqa: RUF001
        (None, "–"),  # noqa: RUF001
    ],
)
def test_bytes_come_in_the_unit_that_suits(size: int | None, text: str) -> None:
    assert size_text(size) == text


def test_numbers_are_grouped_and_the_unknown_is_no_zero() -> None:
    assert count_text(1234567) == "1\u202f234\u202f567"
    assert count_text(2**63 - 1).endswith("807"), "no float between"
    assert count_text(None) == rate_text(None) == time_text(-1) == duration_text(None) == "\N{EN DASH}"
    assert (rate_text(0.25), rate_text(0), rate_text(1200)) == ("0.2", "0", "1\u202f200")


def test_times_are_in_utc_and_absurd_ones_stay_numbers() -> None:
    assert time_text(1357034645123) == "2013-01-01 10:04:05.123"
    assert time_text(1 << 62) == f"{1 << 62} ms"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (999, "999 ms"), (61_000, "1 min 1 s"), (3_600_000, "1 h"), (90_061_000, "1 d 1 h")],
)
def test_time_spans_have_two_units(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


def test_whatever_stands_in_a_template_is_escaped() -> None:
    template = environment().from_string("<a href='{{ x }}'>{{ x }}</a>{{ y | segment }}")
    text = template.render(x="'><script>alert(1)</script>", y="a/b?c#d")
    assert "<script" not in text
    assert text.startswith("<a href='&#39;&gt;")
    assert text.endswith("a%2Fb%3Fc%23d")


def test_a_wanted_page_that_is_not_there_is_the_nearest() -> None:
    items = list(range(95))
    assert page_of(items, "2", 40).items == list(range(40, 80))
    assert (page_of(items, "99", 40).page, page_of(items, "99", 40).items) == (3, list(range(80, 95)))
    for odd in (None, "", "-1", "x", "9" * 5000, "²"):
        assert page_of(items, odd, 40).page == 1
    assert (page_of([], "3", 40).pages, page_of([], "3", 40).total) == (1, 0)


def test_an_address_keeps_its_other_values() -> None:
    assert query_text([("q", "a&b"), ("page", "3")], page=4) == "?q=a%26b&page=4"
    assert query_text([("q", "a"), ("page", "3")], page=None) == "?q=a"
    assert path_segment("a b/ü") == "a%20b%2F%C3%BC"


def test_of_very_many_names_some_are_told() -> None:
    assert names_of(map(str, range(3))) == "0, 1, 2"
    assert names_of(map(str, range(12))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"

"""Options that several commands share."""

import pytest
import typer

from kbroker.cli.options import parse_settings, seconds_of


def test_settings_are_read_up_to_the_first_equals_sign() -> None:
    assert parse_settings(["a=1", " b = x=y ", "empty="]) == {"a": "1", "b": "x=y", "empty": ""}
    assert parse_settings(None) == {}


@pytest.mark.parametrize("text", ["", "no-equals-sign", "=value"])
def test_what_is_no_setting_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not KEY=VALUE"):
        parse_settings([text])


def test_times_have_units() -> None:
    assert [seconds_of(text) for text in ("90s", "10m", "1.5h", "7d", "7")] == [90, 600, 5400, 604_800, 7]
    for text in ("", "m", "x", "-1s", "0", "nan", "inf"):
        with pytest.raises(typer.BadParameter, match="is not a time"):
            seconds_of(text)

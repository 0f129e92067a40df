"""Ctrl-C as a wish."""

import signal

import pytest

from kbroker.cli.interrupts import interrupts


def test_the_first_time_is_only_noted() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupts() as seen:
        assert not seen
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert seen
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_time_raises_where_that_is_wanted() -> None:
    with interrupts(second_raises=True) as seen:
        signal.raise_signal(signal.SIGINT)
        assert seen
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_what_loses_nothing_is_cut_short_at_once() -> None:
    with interrupts() as seen:
        with pytest.raises(KeyboardInterrupt), seen.raising():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert seen

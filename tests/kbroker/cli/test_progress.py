"""The bar for what takes its time."""

import io
import sys

import pytest

from kbroker.cli.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_bar("moving", 3) as show:
        show(3)
    assert isinstance(sys.stderr, Terminal)
    written = sys.stderr.getvalue()
    assert "moving" in written
    assert "3/3" in written


def test_bytes_and_unknown_totals_are_shown_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_bar("reading", 3_000_000, "bytes") as show:
        show(1_500_000)
    with progress_bar("reading", None) as show:
        show(7)
    written = sys.stderr.getvalue()  # type: ignore[union-attr]
    assert "1.5/3.0 MB" in written
    assert "7/?" in written


def test_elsewhere_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_bar("moving", 3) as show:
        show(3)
    assert sys.stderr.getvalue() == ""  # type: ignore[union-attr]

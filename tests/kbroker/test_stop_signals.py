"""Which signals stop a server in order."""

from __future__ import annotations

import asyncio
import signal

import pytest

from kbroker import process
from kbroker.stop_signals import insists, stop_signals


def test_a_closed_terminal_stops_a_server_unless_nohup_has_it_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        assert set(stop_signals()) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert set(stop_signals()) == {signal.SIGINT, signal.SIGTERM}
    finally:
        signal.signal(signal.SIGHUP, before)


def test_only_who_asks_twice_by_hand_insists() -> None:
    hang_up, interrupt, terminate = signal.SIGHUP, signal.SIGINT, signal.SIGTERM
    assert insists([interrupt, interrupt])
    assert insists([terminate, hang_up, interrupt])
    assert not insists([hang_up, hang_up])
    for first in (interrupt, terminate):
        assert not insists([first])
        assert not insists([first, hang_up])
        assert not insists([hang_up, first])


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_broker_whose_terminal_was_closed_ends_in_order_at_the_first_request(
    first: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    stop, received = asyncio.Event(), list[int]()
    for number in (signal.SIGHUP, first, signal.SIGHUP):
        process._on_signal(stop, received, number)
    assert stop.is_set()
    assert ended == []
    process._on_signal(stop, received, signal.SIGTERM)
    assert ended == [128 + signal.SIGTERM]

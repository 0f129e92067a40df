"""Which signals stop a server in order."""

from __future__ import annotations

import asyncio
import signal

import pytest

from kbroker import process
from kbroker.stop_signals import TOGETHER_S, StopRequests, stop_signals


def test_a_closed_terminal_stops_a_server_unless_nohup_has_it_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        assert set(stop_signals()) == {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert set(stop_signals()) == {signal.SIGINT, signal.SIGTERM}
    finally:
        signal.signal(signal.SIGHUP, before)


HANG_UP, INTERRUPT, TERMINATE = signal.SIGHUP, signal.SIGINT, signal.SIGTERM


@pytest.mark.parametrize(
    ("received", "insists"),
    [
        ([(0.0, INTERRUPT)], False),
        ([(0.0, INTERRUPT), (TOGETHER_S, INTERRUPT)], True),
        ([(0.0, TERMINATE), (1.0, HANG_UP), (2.0, INTERRUPT)], True),
        ([(0.0, TERMINATE), (0.01, TERMINATE)], False),  # passed on to a child and to its group
        ([(0.0, TERMINATE), (0.01, TERMINATE), (TOGETHER_S, TERMINATE)], True),
        ([(0.0, HANG_UP), (1.0, HANG_UP)], False),
        ([(0.0, TERMINATE), (1.0, HANG_UP)], False),
        ([(0.0, HANG_UP), (1.0, TERMINATE)], False),
    ],
)
def test_only_who_asks_twice_by_hand_insists(received: list[tuple[float, signal.Signals]], insists: bool) -> None:
    now = 0.0
    requests = StopRequests(lambda: now)
    told = []
    assert not requests
    for now, number in received:  # noqa: B007 - the clock reads it
        told.append(requests.add(number))
    assert requests
    assert told == [*[False] * (len(received) - 1), insists]


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_broker_whose_terminal_was_closed_ends_in_order_at_the_first_request(
    first: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    now = 0.0
    stop, requests = asyncio.Event(), StopRequests(lambda: now)
    for number in (signal.SIGHUP, first, signal.SIGHUP):
        process._on_signal(stop, requests, number)
    assert stop.is_set()
    assert ended == []
    now = 1.0
    process._on_signal(stop, requests, signal.SIGTERM)
    assert ended == [128 + signal.SIGTERM]

"""Which signals stop a server in order."""

from __future__ import annotations

import signal

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
    assert [insists(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == [True, True, False]

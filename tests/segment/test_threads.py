"""Threads that compute let others go first."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from kbroker.segment.threads import NICER_BY, become_nicer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux only")


def niceness(thread_id: int | None = None) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread_id or threading.get_native_id())


def are_nicer(name: str) -> bool:
    """Whether all threads called so let this one go first, as far as they can on this system."""
    found = [each.native_id for each in threading.enumerate() if each.name.startswith(name)]
    assert found
    return sys.platform != "linux" or all(niceness(each) == min(niceness() + NICER_BY, 19) for each in found)


def test_a_thread_becomes_nicer_and_no_other() -> None:
    found: list[int] = []
    before = niceness()

    def run() -> None:
        become_nicer()
        found.append(niceness())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert found == [min(before + NICER_BY, 19)]
    assert niceness() == before


def test_where_niceness_may_not_be_changed_a_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse)
    become_nicer()
    assert niceness() == os.getpriority(os.PRIO_PROCESS, 0)

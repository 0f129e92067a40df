"""What holds the event loop up is named: an API, or a chore."""

import asyncio
import logging
import struct
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker import handlers
from kbroker.handlers.context import RequestContext
from kbroker.network.dispatch import Dispatcher
from kbroker.network.watchdog import STALL_S, UNSEEN, Watchdog, culprit
from kbroker.protocol.messages.api_versions import ApiVersionsRequest

LONG_S = 2.5 * STALL_S
LIMIT_S = 60.0
watching: list[Watchdog] = []
"""The one that watches now."""


def hold_up() -> None:
    """Stand still for long, and until the watchdog has looked, whenever it is let run."""
    (watchdog,) = watching
    time.sleep(LONG_S)
    deadline = time.monotonic() + LIMIT_S
    while watchdog.selector.busy_since not in watchdog._seen and time.monotonic() < deadline:
        time.sleep(0.01)


def watched(*steps: Any) -> Watchdog:
    """Run each step on a watched loop, with a pause after it until the watchdog has counted."""
    watchdog = Watchdog()
    watching[:] = [watchdog]

    async def run() -> None:
        for step in steps:
            result = step()
            if asyncio.iscoroutine(result):
                await result
            await asyncio.sleep(2 * STALL_S)
            async with asyncio.timeout(LIMIT_S):
                while watchdog.selector.stalls:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
        runner.run(run())
    watchdog.stop()
    for thread in threading.enumerate():
        if thread.name == "loop-watchdog":
            thread.join(LIMIT_S)
    return watchdog


def frame_of(api_key: int) -> memoryview:
    return memoryview(struct.pack(">hhih", api_key, 0, 1, -1))


def in_module(name: str, source: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": name, "hold_up": hold_up}
    exec(source, namespace)
    return namespace


def test_a_request_that_holds_the_loop_up_is_named_by_its_api(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    slow = in_module("kbroker.handlers.made_up", "def sleep(*_): hold_up()")["sleep"]
    handlers.load_all()
    dispatcher = Dispatcher(SimpleNamespace())  # type: ignore[arg-type]
    dispatcher.apis[18].handler = slow
    connection: Any = SimpleNamespace(received=0.0, last_active=0.0)
    begun = time.monotonic()
    watchdog = watched(lambda: dispatcher(connection, frame_of(18)))
    assert watchdog.by_name == {"ApiVersions": 1}
    assert LONG_S <= watchdog.stalled_s <= time.monotonic() - begun
    assert "by ApiVersions (handlers.made_up.sleep:1" in caplog.text


def test_the_rest_of_a_request_that_waited_is_named_too() -> None:
    source = "async def rest(services, ctx, request): hold_up()"
    rest = in_module("kbroker.handlers.made_up", source)["rest"]
    ctx = RequestContext(3, 1, 1, None, 0, None)
    assert watched(lambda: rest(None, ctx, ApiVersionsRequest())).by_name == {"Metadata": 1}


def test_a_chore_is_named_by_its_outermost_function() -> None:
    source = "def look(): hold_up()\ndef every_minute(): look()"
    chore = in_module("kbroker.replica.made_up", source)["every_minute"]
    assert watched(chore).by_name == {"replica.made_up.every_minute": 1}


def test_a_loop_that_waits_or_does_little_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = watched(lambda: asyncio.sleep(LONG_S), lambda: time.sleep(STALL_S / 10))
    assert watchdog.stalls == 0
    assert "held up" not in caplog.text


@pytest.mark.slow
def test_stalls_one_after_the_other_make_a_line_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.network.watchdog.LOG_PAUSE_S", 3600.0)
    chore = in_module("kbroker.made_up", "def chore(): hold_up()")["chore"]

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "held up" in record.getMessage()]

    async def until_the_pause_is_over() -> None:
        assert len(lines()) == 1
        watching[0]._next_line = 0.0
        async with asyncio.timeout(LIMIT_S):
            while len(lines()) < 2:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)

    watchdog = watched(*[chore] * 6, until_the_pause_is_over)
    assert watchdog.stalls == 6
    assert "4 shorter stalls before" in lines()[1]


def test_a_stack_without_our_code_is_said_to_be_unseen() -> None:
    assert culprit(None) == (UNSEEN, "")


def test_what_held_the_loop_up_is_let_go_of() -> None:
    class Large:
        pass

    held: list[weakref.ref[Large]] = []
    is_gone: list[bool] = []

    def work() -> None:
        large = Large()
        held.append(weakref.ref(large))
        hold_up()

    watched(work, lambda: is_gone.append(held[0]() is None))
    assert is_gone == [True]

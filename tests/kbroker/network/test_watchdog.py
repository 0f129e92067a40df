"""What holds the event loop up is named: an API, or a chore."""

import asyncio
import logging
import struct
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker import handlers
from kbroker.handlers.context import RequestContext
from kbroker.network.dispatch import Dispatcher
from kbroker.network.watchdog import STALL_S, UNSEEN, Watchdog, culprit
from kbroker.protocol.messages.api_versions import ApiVersionsRequest

LONG_S = 2.5 * STALL_S


def watched(*steps: Any) -> Watchdog:
    """Run each step on a watched loop, with a pause for the watchdog after it."""
    watchdog = Watchdog()

    async def run() -> None:
        for step in steps:
            result = step()
            if asyncio.iscoroutine(result):
                await result
            await asyncio.sleep(2 * STALL_S)

    with asyncio.Runner(loop_factory=watchdog.new_loop) as runner:
        runner.run(run())
    watchdog.stop()
    return watchdog


def frame_of(api_key: int) -> memoryview:
    return memoryview(struct.pack(">hhih", api_key, 0, 1, -1))


def in_module(name: str, source: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": name, "time": time, "LONG_S": LONG_S}
    exec(source, namespace)
    return namespace


def test_a_request_that_holds_the_loop_up_is_named_by_its_api(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    slow = in_module("kbroker.handlers.made_up", "def sleep(*_): time.sleep(LONG_S)")["sleep"]
    handlers.load_all()
    dispatcher = Dispatcher(SimpleNamespace())  # type: ignore[arg-type]
    dispatcher.apis[18].handler = slow
    connection: Any = SimpleNamespace(received=0.0, last_active=0.0)
    watchdog = watched(lambda: dispatcher(connection, frame_of(18)))
    assert watchdog.by_name == {"ApiVersions": 1}
    assert LONG_S <= watchdog.stalled_s < 10 * LONG_S
    assert "by ApiVersions (handlers.made_up.sleep:1" in caplog.text


def test_the_rest_of_a_request_that_waited_is_named_too() -> None:
    source = "async def rest(services, ctx, request): time.sleep(LONG_S)"
    rest = in_module("kbroker.handlers.made_up", source)["rest"]
    ctx = RequestContext(3, 1, 1, None, 0, None)
    assert watched(lambda: rest(None, ctx, ApiVersionsRequest())).by_name == {"Metadata": 1}


def test_a_chore_is_named_by_its_outermost_function() -> None:
    source = "def look(): time.sleep(LONG_S)\ndef every_minute(): look()"
    chore = in_module("kbroker.replica.made_up", source)["every_minute"]
    assert watched(chore).by_name == {"replica.made_up.every_minute": 1}


def test_a_loop_that_waits_or_does_little_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    watchdog = watched(lambda: asyncio.sleep(LONG_S), lambda: time.sleep(STALL_S / 10))
    assert watchdog.stalls == 0
    assert "held up" not in caplog.text


@pytest.mark.slow
def test_stalls_one_after_the_other_make_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    chore = in_module("kbroker.made_up", "def chore(): time.sleep(LONG_S)")["chore"]
    watchdog = watched(*[chore] * 6, lambda: asyncio.sleep(1))
    assert watchdog.stalls == 6
    lines = [record.getMessage() for record in caplog.records if "held up" in record.getMessage()]
    assert len(lines) < 5
    assert any("shorter stalls before" in line for line in lines)


def test_a_stack_without_our_code_is_said_to_be_unseen() -> None:
    assert culprit(None) == (UNSEEN, "")

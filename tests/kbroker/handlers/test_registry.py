"""The table of handlers."""

from __future__ import annotations

import pytest

from kbroker.handlers import load_all, registry
from kbroker.handlers.demands import nothing
from kbroker.protocol.messages.groups import HeartbeatRequest


def test_a_handler_is_found_by_the_key_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "HANDLERS", {})

    @registry.handles(HeartbeatRequest, nothing("a test"))
    def heartbeat() -> None: ...

    assert registry.HANDLERS[12].handler is heartbeat


def test_a_handler_that_demands_nothing_and_does_not_say_so_fails_at_import() -> None:
    with pytest.raises(TypeError, match=r"HeartbeatRequest.*does not say what its sender must be allowed"):
        registry.handles(HeartbeatRequest)


def test_loading_all_handlers_fills_the_table() -> None:
    load_all()
    assert {0, 1, 3, 18, 22} <= registry.HANDLERS.keys()

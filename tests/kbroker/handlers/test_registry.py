"""The table of handlers."""

from __future__ import annotations

import pytest

from kbroker.handlers import load_all, registry
from kbroker.protocol.messages.groups import HeartbeatRequest


def test_a_handler_is_found_by_the_key_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "HANDLERS", {})

    @registry.handles(HeartbeatRequest)
    def heartbeat() -> None: ...

    assert {12: heartbeat} == registry.HANDLERS


def test_loading_all_handlers_fills_the_table() -> None:
    load_all()
    assert {0, 1, 3, 18, 22} <= registry.HANDLERS.keys()

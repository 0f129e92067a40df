"""The page gives up on a slow broker within seconds; a machine that stands still is no reason for a test to fail."""

import pytest

from kbroker.client import record_ages
from kbroker.page import facts, guard, options

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "BROKER_LIMIT_S", PATIENCE_S)
    monkeypatch.setattr(guard, "WRONG_TOKEN_S", 0.01)
    monkeypatch.setattr(record_ages, "WITHIN_S", PATIENCE_S)
    monkeypatch.setattr(options, "REQUEST_TIMEOUT_MS", int(PATIENCE_S * 1000))

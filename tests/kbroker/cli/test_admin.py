"""Rows about partitions; the rest is tested through the commands on a real broker."""

import pytest

from kbroker.cli import profiles
from kbroker.cli.admin import admin_settings, partition_state
from kbroker.client.client_config import AdminConfig
from kbroker.client.types import PartitionDescription


@pytest.mark.parametrize(
    ("leader", "isr", "state"),
    [(1, (1, 2, 3), "ok"), (1, (1, 2), "under-replicated"), (None, (3,), "offline")],
)
def test_a_partitions_state_is_a_word(leader: int | None, isr: tuple[int, ...], state: str) -> None:
    partition = PartitionDescription(0, leader, 5, replicas=(1, 2, 3), isr=isr, offline_replicas=())
    assert partition_state(partition) == state


def test_a_question_is_given_up_sooner_than_a_change_unless_the_settings_say_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profiles, "client_settings", dict)
    asks = AdminConfig.read({**admin_settings(), "bootstrap": "b:1"})
    assert (asks.request_timeout_ms, asks.default_api_timeout_ms) == (10_000, 30_000)
    monkeypatch.setattr(profiles, "client_settings", lambda: {"default.api.timeout.ms": "5"})
    assert AdminConfig.read({**admin_settings(), "bootstrap": "b:1"}).default_api_timeout_ms == 5
    monkeypatch.setattr(profiles, "client_settings", lambda: {"request.timeout.ms": "120000"})
    asks = AdminConfig.read({**admin_settings(), "bootstrap": "b:1"})
    assert (asks.request_timeout_ms, asks.default_api_timeout_ms) == (120_000, None), "changes may take as long"

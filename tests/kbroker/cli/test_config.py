"""`kbroker config` on a real broker."""

from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import fail, kbroker, rows, succeed


@pytest.fixture(autouse=True)
def _bootstrap(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)


@pytest.fixture
def topic(topic_name: str) -> Iterator[str]:
    succeed("topic", "create", topic_name)
    yield topic_name
    succeed("topic", "delete", topic_name)


def own_settings(topic: str) -> list[dict[str, Any]]:
    described = rows("config", "describe", "topic", topic)
    return [entry for entry in described if entry["source"] == "dynamic_topic_config"]


def test_a_key_that_is_set_is_described_until_it_is_unset(topic: str) -> None:
    assert own_settings(topic) == []
    succeed("config", "alter", "topic", topic, "--set", "retention.ms=5000")
    (entry,) = own_settings(topic)
    assert entry == {
        "name": topic,
        "key": "retention.ms",
        "value": "5000",
        "source": "dynamic_topic_config",
        "read_only": False,
    }
    assert {"name": topic, "changed_keys": 1} in rows("config", "list", "topic")
    succeed("config", "alter", "topic", topic, "--unset", "retention.ms")
    assert own_settings(topic) == []


def test_all_keys_are_shown_on_request(topic: str) -> None:
    described = {entry["key"]: entry for entry in rows("config", "describe", "topic", topic, "--all")}
    assert described["cleanup.policy"]["value"] == "delete"
    assert len(described) > 20


def test_a_dry_run_changes_nothing_and_still_refuses(topic: str) -> None:
    succeed("config", "alter", "topic", topic, "--set", "retention.ms=5000", "--dry-run")
    assert own_settings(topic) == []
    assert "retention.ms" in fail("config", "alter", "topic", topic, "--set", "retention.ms=soon", "--dry-run")


def test_a_brokers_dynamic_setting_is_altered() -> None:
    succeed("config", "alter", "broker", "1", "--set", "log.cleaner.threads=2")
    described = {entry["key"]: entry for entry in rows("config", "describe", "broker", "1")}
    assert described["log.cleaner.threads"]["value"] == "2"
    assert described["broker.id"]["source"] == "static_broker_config"
    succeed("config", "alter", "broker", "1", "--unset", "log.cleaner.threads")


def test_an_unknown_key_and_an_unknown_topic_are_refused(topic: str) -> None:
    assert "no.such.key" in fail("config", "alter", "topic", topic, "--set", "no.such.key=1")
    assert "no-such-topic" in fail("config", "describe", "topic", "no-such-topic")


def test_altering_nothing_is_wrong_usage(topic: str) -> None:
    assert kbroker("config", "alter", "topic", topic).returncode == 2

"""`kbroker config` on a real broker."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from kbroker.cluster.without_brokers import in_zookeeper
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.zookeeper import ZooKeeperAddress
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


def test_keys_of_a_broker_that_does_not_start_are_unset_in_zookeeper(zookeeper: ZooKeeperAddress) -> None:
    there = ("--zookeeper", zookeeper.connect_string)
    password, location = (f"listener.name.ssl.ssl.keystore.{name}" for name in ("password", "location"))

    async def set_up(store: ZooKeeper) -> None:
        await store.change_config(
            "brokers", "7", _of({password: "AAAA", location: "/a", "x": "1"}), needs_controller=False
        )

    in_zookeeper(zookeeper.connect_string, set_up)
    assert "not set for broker 7 in ZooKeeper: y" in fail("config", "alter", "broker", "7", "--unset", "y", *there)
    succeed("config", "alter", "broker", "7", "--unset", password, "--unset", location, *there)
    assert in_zookeeper(zookeeper.connect_string, lambda store: store.read_config("brokers", "7")) == {"x": "1"}
    for arguments in (("topic", "7", "--unset", "x"), ("broker", "7", "--set", "x=1"), ("broker", "", "--unset", "x")):
        done = kbroker("config", "alter", *arguments, *there)
        assert (done.returncode, "goes with broker" in done.stderr) == (2, True)


def test_a_broker_that_runs_is_not_altered_behind_its_back(broker: BrokerProcess) -> None:
    there = ("--zookeeper", broker.properties["zookeeper.connect"])
    assert "broker 1 runs: alter it with -b" in fail("config", "alter", "broker", "1", "--unset", "x", *there)


def _of(config: dict[str, str]) -> Callable[[dict[str, str]], Awaitable[dict[str, str]]]:
    async def change(present: dict[str, str]) -> dict[str, str]:
        return config

    return change

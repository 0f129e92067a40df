"""`kbroker cluster reassign`: what needs no second broker."""

import json
from pathlib import Path

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import fail, kbroker, rows, succeed


@pytest.fixture(autouse=True)
def _bootstrap(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)


def test_a_fair_cluster_has_nothing_to_move(topic_name: str) -> None:
    succeed("topic", "create", topic_name, "-p", "3")
    assert rows("cluster", "reassign", topic_name) == []
    assert json.loads(succeed("cluster", "reassign", topic_name, "--dry-run", "--format", "json")) == {
        "version": 1,
        "partitions": [],
    }
    assert "nothing moves" in kbroker("cluster", "reassign", "--list").stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--to", "7"), "there is no broker 7; brokers: 1"),
        (("-r", "2"), "2 replicas need 2 brokers, there are 1: 1"),
        (("no-such-topic",), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(topic_name: str, arguments: tuple[str, ...], reason: str) -> None:
    succeed("topic", "create", topic_name, "-p", "1")
    assert reason in fail(
        "cluster", "reassign", *(arguments if "no-such-topic" in arguments else (topic_name, *arguments))
    )


def test_a_plan_that_is_none_is_refused(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("[]")
    assert "this is no plan" in fail("cluster", "reassign", "--plan", str(plan))


def test_a_plan_for_a_dead_broker_is_refused_by_the_controller(tmp_path: Path, topic_name: str) -> None:
    succeed("topic", "create", topic_name, "-p", "1")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic_name, "partition": 0, "replicas": [9]}]}))
    assert "brokers that are not alive: [9]" in fail("cluster", "reassign", "--plan", str(plan))


@pytest.mark.parametrize(
    "arguments",
    [("--list", "--cancel"), ("--watch", "-r", "2"), ("--to", "one"), ("--plan", "/dev/null", "some-topic")],
)
def test_what_does_not_go_together_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert kbroker("cluster", "reassign", *arguments).returncode == 2

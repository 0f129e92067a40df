"""`kbroker cluster reassign`: what needs no second broker."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import AsyncMock, Mock, call

import pytest

from kbroker import Admin
from kbroker.cli.reassign import BROKER_RATES, TOPIC_REPLICAS, _begin
from kbroker.client.types import ResourceType, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.brokers import MakeCluster
from tests.kbroker.cli.commands import fail, kbroker, rows, succeed

if TYPE_CHECKING:
    from kbroker.cli.reassign import Settings


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


def throttled(admin: Admin, topic: str) -> list[str | None]:
    """What holds the topic's replicas back: their lists, and the broker's rates."""
    lists, rates = admin.describe_configs("topic", [topic])[topic], admin.describe_configs("broker", [1])["1"]
    return [*(lists[key].value or None for key in TOPIC_REPLICAS), *(rates[key].value for key in BROKER_RATES)]


def until(condition: Callable[[], bool]) -> None:
    """Wait until the broker has heard of it."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("replicas", [[9], [1, 1]])
def test_a_plan_that_is_refused_leaves_the_throttle_as_it_was(
    tmp_path: Path, topic_name: str, broker: BrokerProcess, replicas: list[int]
) -> None:
    succeed("topic", "create", topic_name, "-p", "1")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic_name, "partition": 0, "replicas": replicas}]}))
    with Admin(broker.bootstrap) as admin:
        admin.alter_configs("topic", topic_name, {TOPIC_REPLICAS[0]: "0:7"})
        before = ["0:7", None, *throttled(admin, topic_name)[2:]]
        until(lambda: throttled(admin, topic_name) == before)
        fail("cluster", "reassign", "--plan", str(plan), "--throttle", "777")
        admin.alter_configs("topic", topic_name, {"retention.ms": "777"})  # what the broker hears of after the throttle
        until(lambda: admin.describe_configs("topic", [topic_name])[topic_name]["retention.ms"].value == "777")
        assert throttled(admin, topic_name) == before


@pytest.mark.parametrize("refused", [False, True])
async def test_ctrl_c_before_anything_moves_leaves_the_throttle_as_it_was(refused: bool) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def stands(*_: object) -> dict[TopicPartition, object]:
        reached.set()
        await go_on.wait()
        return {}

    admin = AsyncMock()
    admin.describe_configs.return_value = {"1": {BROKER_RATES[0]: Mock(source="DEFAULT_CONFIG")}}
    admin.list_reassignments.return_value = {}
    if refused:  # and Ctrl-C while the throttle is taken back
        admin.alter_reassignments.side_effect = OSError
        admin.list_reassignments.side_effect = stands
    else:
        admin.alter_reassignments.side_effect = stands
    settings: Settings = [(ResourceType.BROKER, "1", {BROKER_RATES[0]: "777"})]
    beginning = asyncio.create_task(_begin(admin, {TopicPartition("t", 0): (2,)}, settings))
    async with asyncio.timeout(10):
        await reached.wait()
        beginning.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await beginning
    assert admin.alter_configs.await_args_list == [
        call(ResourceType.BROKER, "1", {BROKER_RATES[0]: value}) for value in ("777", None)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--watch", "--cancel"])
def test_a_throttle_is_taken_away_when_the_moves_have_ended_before(
    own_broker: BrokerProcess, topic_name: str, option: str
) -> None:
    succeed("topic", "create", topic_name, "-p", "1", "-b", own_broker.bootstrap)
    with Admin(own_broker.bootstrap) as admin:
        before = throttled(admin, topic_name)
        admin.alter_configs("topic", topic_name, dict.fromkeys(TOPIC_REPLICAS, "0:1"))
        admin.alter_configs("broker", 1, dict.fromkeys(BROKER_RATES, "777"))
        until(lambda: throttled(admin, topic_name) == ["0:1", "0:1", "777", "777"])
        succeed("cluster", "reassign", option, "-b", own_broker.bootstrap)
        until(lambda: throttled(admin, topic_name) == before)


@pytest.mark.slow
def test_a_move_is_taken_back_together_with_its_throttle(
    make_cluster: MakeCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(2, properties={"replica.fetch.max.bytes": "100000"})
    monkeypatch.setenv("KBROKER_BOOTSTRAP", cluster.bootstrap)
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic_name, assignments={0: [1]})
        succeed("topic", "produce", topic_name, given=(b"x" * 100_000 + b"\n") * 10)
        before = throttled(admin, topic_name)
        succeed("cluster", "reassign", topic_name, "--to", "2", "--no-wait", "--throttle", "10")
        until(lambda: throttled(admin, topic_name) == ["0:1", "0:2", "10", "10"])
        assert [row["state"] for row in rows("cluster", "reassign", "--cancel")] == ["taken back"]
        until(lambda: throttled(admin, topic_name) == before)
        assert rows("cluster", "reassign", "--list") == []


@pytest.mark.parametrize(
    "arguments",
    [("--list", "--cancel"), ("--watch", "-r", "2"), ("--to", "one"), ("--plan", "/dev/null", "some-topic")],
)
def test_what_does_not_go_together_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert kbroker("cluster", "reassign", *arguments).returncode == 2

"""What was acknowledged and is gone is noticed; what nobody can know is not held against anybody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.client.errors import NotConnected
from kbroker.controller import znodes
from kbroker.controller.znodes import ReplicaAssignment, TopicAssignment
from tests.simulation import administration
from tests.simulation.acknowledged_changes import AcknowledgedChanges, Register
from tests.simulation.administration import Change
from tests.simulation.loop import Simulation
from tests.simulation.network import Network
from tests.simulation.zookeeper import HOST, ZooKeeperServer

TOPIC: Register = ("topic", "other-1")


class Past:
    """Changes, one second after the other."""

    def __init__(self) -> None:
        self.now = 0.0
        self.changes = AcknowledgedChanges(lambda: self.now)

    def asks(self, value: Any, register: Register = TOPIC) -> Callable[[], None]:
        """Somebody asks for a value; the answer comes when what is returned is called."""
        self.now += 1
        attempt = self.changes.begin({register: value})
        return lambda: self.answers(attempt)

    def answers(self, attempt: Any) -> None:
        """The answer comes."""
        self.now += 1
        self.changes.acknowledge(attempt)

    def lost(self, found: Mapping[Register, Any]) -> list[str]:
        """Return what is wrong."""
        return self.changes.lost(found.get)


def test_a_topic_that_was_acknowledged_and_is_gone_is_noticed() -> None:
    past = Past()
    past.asks(3)()
    assert past.lost({TOPIC: 3}) == []
    assert past.lost({}) == ["topic other-1 is None, acknowledged or asked for: [3]"]
    assert past.lost({TOPIC: 2}) == ["topic other-1 is 2, acknowledged or asked for: [3]"]


def test_a_topic_that_comes_back_after_its_deletion_was_acknowledged_is_noticed() -> None:
    past = Past()
    past.asks(3)()
    past.asks(None)()
    assert past.lost({}) == []
    assert past.lost({TOPIC: 3}) == ["topic other-1 is 3, acknowledged or asked for: [None]"]


def test_what_was_never_answered_may_have_happened_at_any_time_or_not_at_all() -> None:
    past = Past()
    past.asks(None)
    past.asks(3)()
    assert past.lost({TOPIC: 3}) == past.lost({}) == []
    assert len(past.lost({TOPIC: 1})) == 1


def test_of_two_that_ran_at_the_same_time_either_may_have_been_the_last() -> None:
    past = Past()
    one, other = past.asks(1), past.asks(2)
    other()
    one()
    assert past.lost({TOPIC: 1}) == past.lost({TOPIC: 2}) == []
    past.asks(4)()
    assert len(past.lost({TOPIC: 1})) == len(past.lost({TOPIC: 2})) == 1


def test_of_what_nobody_was_told_anything_nothing_is_known() -> None:
    past = Past()
    past.asks(3)
    assert past.lost({TOPIC: 17}) == []


@pytest.mark.parametrize(
    ("refusal", "lost"), [(None, ["topic other-1 is None, acknowledged or asked for: [3]"]), (NotConnected("gone"), [])]
)
async def test_an_administrator_passes_on_what_it_was_told(
    monkeypatch: pytest.MonkeyPatch, refusal: Exception | None, lost: list[str]
) -> None:
    class Admin:
        def __init__(self, bootstrap: str, **settings: Any) -> None:
            assert settings["retry_backoff_ms"] >= settings["request_timeout_ms"], "it asks once"

        async def __aenter__(self) -> Admin:
            return self

        async def __aexit__(self, *exception: object) -> None:
            pass

    async def act(admin: Any) -> None:
        if refusal is not None:
            raise refusal

    monkeypatch.setattr(administration, "Admin", Admin)
    past = Past()
    await administration.carry_out("", Change("create other-1", act, {TOPIC: 3}), past.changes)
    assert past.lost({}) == lost


def test_what_there_is_of_a_thing_stands_in_zookeeper() -> None:
    simulation = Simulation(1)
    server = ZooKeeperServer(Network(simulation), simulation.machine(HOST))
    replicas: Register = ("replicas", "other-1", "1")
    setting: Register = ("setting", "other-1", "segment.ms")
    assert [server.register(each) for each in (TOPIC, replicas, setting)] == [None, None, None]
    assignment = TopicAssignment(None, {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((2, 3))})
    nodes: dict[str, Any] = {
        "/brokers/topics/other-1": SimpleNamespace(data=znodes.encode_topic(assignment)),
        "/config/topics/other-1": SimpleNamespace(data=znodes.encode_config({"segment.ms": "500"})),
    }
    server.tree.nodes.update(nodes)
    assert [server.register(each) for each in (TOPIC, replicas, setting)] == [2, [2, 3], "500"]

"""The real adapter, whose client has no threads here, on ZooKeeper's tree in memory: retries, watches, sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.controller import znodes, zookeeper
from kbroker.controller.znode_operations import BadVersion, Create, NodeExists, NoNode, SessionExpired, SetData
from kbroker.controller.znodes import ReplicaAssignment, TopicAssignment
from kbroker.controller.zookeeper import ZooKeeper
from tests.simulation.loop import Machine, Simulation
from tests.simulation.network import Network
from tests.simulation.zookeeper import HOST, ODDITIES, PORT, Kazoo, ZooKeeperServer

SESSION_MS = 4000


class Ensemble:
    """A server, and machines with adapters."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.network = Network(self.simulation)
        self.server = ZooKeeperServer(self.network, self.simulation.machine(HOST))
        self.machine: Machine = self.simulation.machine("broker-1")

    def run(self, work: Coroutine[Any, Any, Any], seconds: float = 60) -> Any:
        """Do it on the machine."""
        task = self.machine.create_task(work)
        assert self.simulation.run(seconds, task.done), "it takes too long"
        return task.result()

    def connected(self) -> ZooKeeper:
        """Return an adapter with a session."""

        async def connect() -> ZooKeeper:
            found = ZooKeeper(f"{HOST}:{PORT}", SESSION_MS, 2 * SESSION_MS)
            await found.connect()
            return found

        adapter: ZooKeeper = self.run(connect())
        return adapter


@pytest.fixture
def ensemble(monkeypatch: pytest.MonkeyPatch) -> Ensemble:
    """One whose clients have no threads."""
    monkeypatch.setattr(zookeeper, "KazooClient", Kazoo)
    return Ensemble(seed=1)


def test_znodes_are_made_read_changed_and_refused_as_by_a_real_one(ensemble: Ensemble) -> None:
    adapter = ensemble.connected()

    async def work() -> None:
        assert await adapter.create("/a", b"1") == "/a"
        with pytest.raises(NodeExists):
            await adapter.create("/a", b"1")
        await adapter.set("/a", b"2", 0)
        with pytest.raises(BadVersion):
            await adapter.set("/a", b"3", 0)
        data, stat = await adapter.get("/a")
        assert (data, stat.version) == (b"2", 1)
        with pytest.raises(NoNode):
            await adapter.get("/b")
        assert await adapter.exists("/b") is None
        outcomes = await adapter.multi([Create("/b", b""), SetData("/a", b"4", 7)])
        assert isinstance(outcomes[1], BadVersion)
        assert await adapter.get_many(["/a", "/b"]) == [(b"2", stat), None]
        assert await adapter.children("/") == ["a", "zookeeper"]

    ensemble.run(work())


def test_a_watch_tells_once_and_again_after_a_reconnection(ensemble: Ensemble) -> None:
    adapter, told = ensemble.connected(), list[str]()
    adapter.watch("/a", told.append)

    async def change() -> None:
        await adapter.exists("/a", watch=True)
        await adapter.create("/a", b"")
        await adapter.set("/a", b"unwatched")

    ensemble.run(change())
    assert told == ["/a"]
    for wire in list(ensemble.network.connections.values()):
        wire.reset()
    assert ensemble.simulation.run(10, lambda: len(told) == 2)


def test_a_request_whose_answer_is_lost_is_sent_again_in_the_same_session(ensemble: Ensemble) -> None:
    adapter = ensemble.connected()
    ensemble.network.cut(HOST, "broker-1")
    task = ensemble.machine.create_task(adapter.create("/a", b""))
    assert ensemble.simulation.run(10, lambda: "/a" in ensemble.server.tree.nodes)
    for wire in list(ensemble.network.connections.values()):
        wire.reset()
    ensemble.network.mend()
    assert ensemble.simulation.run(10, task.done)
    with pytest.raises(NodeExists):
        task.result()


def test_a_session_that_is_cut_off_for_too_long_expires_with_its_ephemeral_nodes(ensemble: Ensemble) -> None:
    adapter, told = ensemble.connected(), list[str]()
    adapter.on_session_expired.append(lambda: told.append("expired"))
    adapter.on_session_established.append(lambda: told.append("established"))
    ensemble.run(adapter.create("/mine", b"", ephemeral=True))
    for source, target in ((HOST, "broker-1"), ("broker-1", HOST)):
        ensemble.network.cut(source, target)
    waiting = ensemble.machine.create_task(adapter.create("/late", b""))
    assert ensemble.simulation.run(30, lambda: "/mine" not in ensemble.server.tree.nodes)
    assert told == []
    ensemble.network.mend()
    assert ensemble.simulation.run(30, lambda: len(told) == 2)
    assert told == ["expired", "established"]
    with pytest.raises(SessionExpired):
        waiting.result()
    ensemble.run(adapter.create("/mine", b"", ephemeral=True))


def test_an_adapter_that_closes_takes_its_ephemeral_nodes_with_it_at_once(ensemble: Ensemble) -> None:
    adapter = ensemble.connected()
    ensemble.run(adapter.create("/mine", b"", ephemeral=True))
    ensemble.run(adapter.close())
    assert ensemble.simulation.run(1, lambda: "/mine" not in ensemble.server.tree.nodes)


def test_a_server_that_stands_still_is_waited_for(ensemble: Ensemble) -> None:
    adapter = ensemble.connected()
    for machine in ensemble.simulation.machines:
        if machine.host == HOST:
            machine.stands_still_until = ensemble.simulation.now + SESSION_MS / 2000

    async def work() -> str:
        return await asyncio.wait_for(adapter.create("/a", b""), 30)

    assert ensemble.run(work()) == "/a"


@pytest.mark.parametrize(("oddity", "is_done"), [("done", True), ("not done", False), ("expired", False)])
def test_an_odd_server_leaves_who_asks_without_an_answer_whether_it_was_done_or_not(
    ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch, oddity: str, is_done: bool
) -> None:
    adapter, told = ensemble.connected(), list[str]()
    adapter.on_session_expired.append(lambda: told.append("expired"))
    monkeypatch.setitem(ODDITIES, oddity, 1.0)
    ensemble.server.oddity = oddity
    task = ensemble.machine.create_task(adapter.create("/a", b""))
    lines = dict(ensemble.server._lines)
    assert ensemble.simulation.run(10, lambda: dict(ensemble.server._lines) != lines)
    assert ("/a" in ensemble.server.tree.nodes) == is_done
    ensemble.server.oddity = ""
    assert ensemble.simulation.run(30, task.done)
    assert isinstance(task.exception(), NodeExists if is_done else SessionExpired if told else type(None))
    assert told == (["expired"] if oddity == "expired" else [])


def test_what_a_controller_has_yet_to_finish_stands_in_the_tree() -> None:
    server = Ensemble(1).server
    assert server.under_way() == []
    assignment = TopicAssignment(None, {0: ReplicaAssignment((3, 2, 1), (3,), (1,)), 1: ReplicaAssignment((1, 2))})
    nodes: dict[str, Any] = {
        "/brokers/topics": SimpleNamespace(children={"t": None}),
        "/brokers/topics/t": SimpleNamespace(data=znodes.encode_topic(assignment)),
        "/admin/delete_topics": SimpleNamespace(children={"u": None}),
    }
    server.tree.nodes.update(nodes)
    assert server.under_way() == ["t-0 moves", "u is to be deleted"]
    assert [server.is_replica(each, "t", 1) for each in (1, 2, 3)] == [True, True, False]
    assert not server.is_replica(1, "u", 0)

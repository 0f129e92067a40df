"""The controller at scale without sockets: its runner, store and channels as in a broker, ZooKeeper and brokers played.

ZooKeeper's tree and the network to it are those of tests/simulation, each on a machine of its own in virtual time, so
that what is measured is the controller's machine alone: the CPU that its event loop uses and the longest of its turns.
Brokers are answers: what is sent to one is put into bytes as for a real one, and answered a little later.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.large_cluster import Shape, registration
from kbroker.cluster.broker_channels import BrokerChannels
from kbroker.cluster.setup_timeout import ConnectionSetup
from kbroker.controller import multi_codec, znodes, zookeeper
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.runner import ControllerRunner
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.dev.stand_in.operations import Create, Delete
from kbroker.dev.stand_in.tree import Client
from kbroker.network.parts import part_size
from kbroker.process import GC_THRESHOLDS
from kbroker.protocol.codec import decode, encode
from kbroker.protocol.headers import encode_request
from kbroker.protocol.messages.replication import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
)
from tests.controller.fake_channels import yes_to
from tests.simulation.loop import Machine, Simulation
from tests.simulation.network import Network
from tests.simulation.zookeeper import HOST, PORT, Kazoo, ZooKeeperServer

CONTROLLER_ID = 1
SESSION_MS = 18_000
OUTSIDER = 1 << 40
"""The session that does to ZooKeeper what brokers would: it never ends."""
ANSWER_S = 0.002
LONGEST_S = 600.0
QUIET_S = 2.0
_READS = {3: "exists", 4: "get", 8: "children", 12: "children", 22: "multi-read"}


@dataclass
class Story:
    """What one thing that happened in the cluster cost the controller."""

    name: str
    cpu_s: float = 0.0
    longest_ms: float = 0.0
    took_s: float = 0.0
    """Of virtual time: the network and the brokers answer in some milliseconds, the controller's own work in none."""
    reads: int = 0
    nodes_read: int = 0
    writes: int = 0
    nodes_written: int = 0
    zookeeper_bytes: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    most_per_broker: int = 0
    request_bytes: int = 0
    memory_mb: float = 0.0


class Book:
    """Where all that is counted goes; `open` begins a new page."""

    def __init__(self) -> None:
        self.story = Story("")
        self.per_broker: Counter[int] = Counter()
        self.last_at = 0.0

    def open(self, name: str, now: float) -> None:
        """Count for another thing from now on."""
        self.story = Story(name)
        self.per_broker.clear()
        self.last_at = now

    def of_zookeeper(self, request: Any, now: float) -> None:
        """Count a request to ZooKeeper."""
        story = self.story
        self.last_at = now
        nodes = len(getattr(request, "_paths", None) or getattr(request, "_operations", None) or (1,))
        if request.type in _READS:
            story.reads += 1
            story.nodes_read += nodes
        else:
            story.writes += 1
            story.nodes_written += nodes - isinstance(request, multi_codec.Multi)  # less the fence

    def of_broker(self, broker_id: int, request: Any, size: int, now: float) -> None:
        """Count a request to a broker."""
        self.story.requests[type(request).__name__.removesuffix("Request")] += 1
        self.story.request_bytes += size
        self.per_broker[broker_id] += 1
        self.story.most_per_broker = max(self.per_broker.values())
        self.last_at = now


BOOK = Book()


class CountingKazoo(Kazoo):
    """ZooKeeper's client, whose requests and answers are counted."""

    def _send(self, request: Any, reply: Any) -> None:
        super()._send(request, reply)
        BOOK.of_zookeeper(request, self._loop.time())

    def _submit(self, xid: int, kind: int, body: bytes) -> None:
        BOOK.story.zookeeper_bytes += len(body) + 12
        super()._submit(xid, kind, body)

    def data_received(self, data: bytes) -> None:
        """Answers and events come."""
        BOOK.story.zookeeper_bytes += len(data)
        super().data_received(data)


class PaperBroker:
    """The far end of a channel: takes the bytes, answers a little later that all is well."""

    is_closed = False

    def __init__(self, broker_id: int, machine: Machine) -> None:
        self._broker_id = broker_id
        self._machine = machine
        self._loop = asyncio.get_running_loop()

    def send(self, request: Any, version: int) -> asyncio.Future[Any]:
        """Take a request."""
        size = sum(part_size(part) for part in encode_request(request, version, 1, "controller"))
        BOOK.of_broker(self._broker_id, request, size, self._loop.time())
        answer = self._loop.create_future()
        self._machine.call_later(ANSWER_S, self._answer, answer, request, version)
        return answer

    def _answer(self, answer: asyncio.Future[Any], request: Any, version: int) -> None:
        """On the brokers' machine: what it costs to put an answer together is not the controller's."""
        found = yes_to(request)
        self._loop.call_soon(self._read, answer, type(found), encode(found, version), version)

    def _read(self, answer: asyncio.Future[Any], kind: type[Any], data: bytes, version: int) -> None:
        if not answer.done():
            answer.set_result(decode(kind, data, version))

    async def close(self) -> None:
        """Nothing is open."""


class PaperConnections(ConnectionSetup):
    """Opens connections to brokers on paper, which are told apart by their ports."""

    machine: Machine | None = None

    def of_peer(self) -> Any:
        """Return what one peer's connections are opened with."""
        return self

    async def connect(self, address: tuple[str, int], **arguments: Any) -> Any:
        """Open a connection."""
        assert self.machine is not None
        return PaperBroker(address[1], self.machine)


class TimedMachine(Machine):
    """A machine whose turns are timed: the CPU that they take, and the longest."""

    def turn(self) -> None:
        """Run what is ready now."""
        began = time.thread_time()
        super().turn()
        took = time.thread_time() - began
        BOOK.story.cpu_s += took
        BOOK.story.longest_ms = max(BOOK.story.longest_ms, took * 1000)


class SimulatedCluster:
    """ZooKeeper with a cluster in it, and a broker that is, or will be, its controller.

    Made where `CountingKazoo` is ZooKeeper's client.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.simulation = Simulation(seed=1)
        network = Network(self.simulation)
        self.server = ZooKeeperServer(network, self.simulation.machine(HOST))
        self.machine = TimedMachine(self.simulation, "controller")
        self.simulation.add(self.machine)
        self.server.tree.open_session(OUTSIDER, SESSION_MS, b"", 0)
        self._client = Client(OUTSIDER)
        for path, data in shape.znodes(registered=self._registrations()):
            self.server.tree.write(Create(path, data), self._client, 0)
        self.stories: list[Story] = []
        self.runner = self._run(self._connected())

    def _registrations(self) -> Iterator[tuple[str, bytes | None]]:
        for broker_id in self.shape.broker_ids:
            yield znodes.broker_path(broker_id), znodes.encode_broker(registration(broker_id, broker_id))

    async def _connected(self) -> ControllerRunner:
        adapter = ZooKeeper(f"{HOST}:{PORT}", SESSION_MS, SESSION_MS)
        await adapter.connect()
        connections = PaperConnections()
        connections.machine = self.simulation.machine("brokers")
        channels = BrokerChannels(CONTROLLER_ID, connections=connections)
        config = ControllerConfig(auto_leader_rebalance_enable=False)
        return ControllerRunner(adapter, CONTROLLER_ID, channels, config, lambda: bytes(16))

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        task = self.machine.create_task(work)
        assert self.simulation.run(LONGEST_S, task.done), "it takes too long"
        return task.result()

    # --- brokers ---

    def register(self, broker_id: int) -> None:
        """Let a broker come."""
        data = znodes.encode_broker(registration(broker_id, broker_id))
        self._write(Create(znodes.broker_path(broker_id), data))

    def go(self, broker_id: int) -> None:
        """Let a broker's session end."""
        self._write(Delete(znodes.broker_path(broker_id), -1))

    def dismiss(self) -> None:
        """Let the controller run for office anew, as an administrator does."""
        self._write(Delete(znodes.CONTROLLER, -1))

    def _write(self, operation: Create | Delete) -> None:
        self.server.tree.write(operation, self._client, 0)
        self.server._answer()  # whoever watches hears of it

    # --- what happens ---

    def tell(self, name: str, happens: Callable[[], Coroutine[Any, Any, Any] | None]) -> Story:
        """Let a thing happen, and wait until nothing comes of it any more."""
        began = self.simulation.now
        before_mb = resident_mb()
        BOOK.open(name, began)
        work = happens()
        if work is not None:
            self._run(work)
        while self.simulation.now < max(BOOK.last_at, began) + QUIET_S:
            self.simulation.run(QUIET_S / 10)
        story = BOOK.story
        story.took_s = BOOK.last_at - began
        gc.collect()
        story.memory_mb = resident_mb() - before_mb
        self.stories.append(story)
        return story

    async def stop_in_order(self, broker_id: int) -> None:
        """Ask for a controlled shutdown."""
        epoch = self.runner.state.brokers[broker_id].epoch
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch)
        await self.runner.controlled_shutdown(request, 3)

    async def take_back(self, broker_id: int) -> None:
        """All leaders take a broker back into the ISRs of what they lead, each in one request."""
        state = self.runner.state
        by_leader: dict[int, list[znodes.TopicPartition]] = {}
        for each in state.partitions_on(broker_id):
            if broker_id not in state.leadership[each].isr:
                by_leader.setdefault(state.leadership[each].leader, []).append(each)
        for leader, partitions in by_leader.items():
            await self.runner.alter_partition(self._grown(broker_id, leader, partitions), 3)

    def _grown(self, broker_id: int, leader: int, partitions: list[znodes.TopicPartition]) -> AlterPartitionRequest:
        state, request = self.runner.state, AlterPartitionRequest
        topics: dict[str, list[Any]] = {}
        for each in partitions:
            known = state.leadership[each]
            members = (*known.isr, broker_id)
            topics.setdefault(each.topic, []).append(
                request.PartitionData(
                    partition_index=each.partition,
                    leader_epoch=known.leader_epoch,
                    new_isr_with_epochs=[request.BrokerState(broker_id=member) for member in members],
                    partition_epoch=known.partition_epoch,
                )
            )
        return request(
            broker_id=leader,
            broker_epoch=state.brokers[leader].epoch,
            topics=[request.TopicData(topic_id=state.topic_id(name), partitions=each) for name, each in topics.items()],
        )


def resident_mb() -> float:
    """Return this process's resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def measure(shape: Shape, restarted: int = 10) -> list[Story]:
    """A controller's life: it takes over from one that died, a broker dies and comes back, all restart in turn."""
    zookeeper.KazooClient = CountingKazoo  # type: ignore[attr-defined]
    cluster = SimulatedCluster(shape)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    dead, restarting = shape.brokers, range(2, 2 + restarted)
    cluster.go(dead)  # the controller before: nobody has heard of its death yet

    cluster.tell("takes over from a dead controller", cluster.runner.start)
    cluster.tell("is dismissed and takes over again", cluster.dismiss)
    cluster.tell("that broker comes back", lambda: cluster.register(dead))
    cluster.tell("it is in sync again", lambda: cluster.take_back(dead))
    cluster.tell("a broker dies", lambda: cluster.go(dead))
    cluster.register(dead)
    cluster.simulation.run(QUIET_S)
    cluster.tell("", lambda: cluster.take_back(dead))
    cluster.stories.pop()

    def restart() -> Coroutine[Any, Any, None]:
        async def one_after_the_other() -> None:
            for broker_id in restarting:
                await cluster.stop_in_order(broker_id)
                cluster.go(broker_id)
                await asyncio.sleep(1)
                cluster.register(broker_id)
                await asyncio.sleep(1)
                await cluster.take_back(broker_id)

        return one_after_the_other()

    cluster.tell(f"{restarted} brokers restart in turn", restart)
    cluster.runner.state.check()
    return cluster.stories

"""The world of one seed: ZooKeeper, brokers, clients, what breaks, and the verdict.

    verdict = play(seed=7, seconds=60, folder=Path("build/simulation"))

FOLDER/history.jsonl   what clients saw, as of `kbroker verify`
FOLDER/test.json       what the checker has to know of it
FOLDER/trace.txt       what happened when, brokers' log lines too: the same for the same seed, byte for byte
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from kbroker.broker import Broker, StartError
from kbroker.config.broker_config import read_broker_config
from kbroker.coordinator.transaction import PREPARED
from kbroker.protocol.messages.transactions import WriteTxnMarkersRequest
from kbroker.replica.partition import Role
from kbroker.verify.checker import COMPLETE, VALID, judge_folder
from kbroker.verify.history import HISTORY_FILE, INFO, NEMESIS, SETTINGS_FILE, Recorder
from kbroker.verify.workers import Trial
from tests.simulation import clients, coordinators, outside
from tests.simulation.acknowledged_changes import AcknowledgedChanges
from tests.simulation.deaths import PARTITIONS, TOPIC, Undo
from tests.simulation.events import EVENTS
from tests.simulation.late_markers import LateMarkers
from tests.simulation.loop import STARTED_AT_S, Machine, Simulation, StandsStill
from tests.simulation.network import Network
from tests.simulation.promises import PromiseBroken, Promises
from tests.simulation.strangers import Stranger, Visitor
from tests.simulation.workloads import WORKLOADS
from tests.simulation.zookeeper import HOST, PORT, ZooKeeperServer

TRACE_FILE = "trace.txt"
BROKERS = 3
SESSION_MS = 1000
CHECKPOINTS_MS = 1000
SEGMENT_BYTES = 2048
START_AGAIN_S = 0.5
READY_S, END_S, FINAL_S = 120.0, 60.0, 300.0
"""Limits of what must happen without faults: the start, the clients' end, the last phase."""
SETTLED_S, SERVING_S = 8.0, 6.0
"""So long after all is healed everybody knows of everybody; and so much later all brokers serve, whatever they lost."""
LONELY = "lonely"
"""A topic of which each broker has something that no other has."""
HEALTHY_S = 0.7
"""On the average, the time between two rounds of faults."""
FAULTS_S = (0.1, 0.5, 1.5, 2.5)
"""How long one lasts before the next, or before all is healed: shorter and longer than a session, and than what makes
a follower late."""
NOTHING_DONE = "nothing was acknowledged"
"""Of a short life in which nobody could do anything there is nothing to be judged."""
CLIENT_LIFE_S = 4.0
"""On the average, until a client is killed."""
FROZEN = 0.3
"""How often a client stands still instead, and goes on beside the one that takes its place."""
FLUSHES = 0.4
"""How often a cluster flushes before it acknowledges."""
HAS_EPOCH_EACH, VERIFIES, HAS_FEW_EPOCHS = 0.7, 0.7, 0.5
"""How often each transaction has an epoch of its own, how often those that have none are verified, and how often a
producer id has epochs for a few only."""

AnyProcess = TypeVar("AnyProcess", bound=clients.Process)

log = logging.getLogger(__name__)


class SimulatedBroker:
    """A broker's place: its host and its disk stay, the broker itself may be killed and started anew."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.broker_id = broker_id
        self.host = f"broker-{broker_id}"
        self.machine: Machine | None = None
        self.is_serving = False
        self._world = world
        self.disks = [outside.Outside.disks.add(world.folder / f"disk-{broker_id}-{each}") for each in "ab"]
        """One for each of its log directories."""
        self._broker: Broker | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def runs(self) -> bool:
        """Whether there is a process."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin to be, unless it is."""
        if not self.runs:
            self.kill()
            self.machine = self._world.simulation.machine(self.host)
            self.machine.is_watched = True
            self._world.machines[self.machine] = self
            self._task = self.machine.create_task(self._live(), name=f"{self.host}-life")
            self._task.add_done_callback(asyncio.Task.result)  # what ended it is told of

    def lose_power(self, rng: random.Random) -> int:
        """End at once; the disks keep what was synced. Returns how many changes were lost."""
        self.kill()
        return sum(disk.forget(rng) for disk in self.disks)

    def kill(self) -> None:
        """End at once; the disks keep what was written."""
        machine, self.machine = self.machine, None
        self._task, self.is_serving = None, False
        if machine is not None:
            del self._world.machines[machine]
            self._world.simulation.kill(machine)
            self._world.network.died(machine)
        broker, self._broker = self._broker, None
        if broker is not None and hasattr(broker, "logs"):
            for log_dir in broker.logs.table.dirs.values():
                log_dir.unlock()

    def stop(self) -> None:
        """End in order."""
        if self.runs and self.machine is not None and self._broker is not None:
            self.machine.create_task(self._end(self._broker), name=f"{self.host}-end")

    async def _end(self, broker: Broker) -> None:
        if self.is_serving:
            self.is_serving = False
            await broker.stop()
            broker.fatal.set()

    async def _live(self) -> None:
        """As kbroker/process.py does: start again when the session ends meanwhile; here whatever it was."""
        while True:
            self._broker = broker = Broker(read_broker_config(self._properties()))
            try:
                await broker.start()
                break
            except StartError as error:
                log.warning("not started: %s", error)
                await asyncio.sleep(START_AGAIN_S)
        self.is_serving = True
        await broker.fatal.wait()
        if self.is_serving:
            self.is_serving = False
            await broker.stop(controlled=False)

    def _properties(self) -> dict[str, str]:
        return {
            "broker.id": str(self.broker_id),
            "listeners": f"PLAINTEXT://{self.host}:9092",
            "log.dirs": ",".join(disk.folder for disk in self.disks),
            "zookeeper.connect": f"{HOST}:{PORT}",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            "min.insync.replicas": str(clients.MIN_IN_SYNC),
            "log.flush.interval.messages": "1" if self._world.flushes else str((1 << 63) - 1),
            "zookeeper.connection.timeout.ms": str(2 * SESSION_MS),
            "log.cleaner.enable": "false",
            "log.scrub.interval.ms": "0",
            "auto.create.topics.enable": "false",
            "replica.lag.time.max.ms": "800",
            "controller.socket.timeout.ms": "1500",
            "request.timeout.ms": "1500",
            "group.min.session.timeout.ms": "1000",
            "group.initial.rebalance.delay.ms": "300",
            "log.segment.bytes": str(SEGMENT_BYTES),
            "log.flush.offset.checkpoint.interval.ms": str(CHECKPOINTS_MS),
            "replica.high.watermark.checkpoint.interval.ms": str(CHECKPOINTS_MS),
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "kbroker.new.cluster.transaction.version": "2" if self._world.has_epoch_each else "0",
            "transaction.partition.verification.enable": str(self._world.verifies).lower(),
        }

    @property
    def replicas(self) -> Any:
        """What has its copies of partitions, None while there is none."""
        return None if self._broker is None else self._broker._replicas

    def hosted(self) -> Iterable[Any]:
        """Return the partitions it has."""
        replicas = self.replicas
        return () if replicas is None else replicas.hosted.values()

    def epochs(self) -> tuple[int, int]:
        """Return that of the latest controller it has heard, and that of its own life."""
        replicas = self.replicas
        return (0, -1) if replicas is None else (replicas._leadership.controller_epoch, replicas.broker_epoch())

    def coordinates(self) -> Any:
        """Return the transactions that it coordinates, as one part; None while there is none."""
        coordinator = None if self._broker is None else self._broker._transactions
        return None if coordinator is None else coordinator._owned.by_number.get(0)

    def is_deciding(self) -> bool:
        """Whether it coordinates a transaction that is decided, and whose markers are not all written."""
        owned = self.coordinates() if self.is_serving else None
        return owned is not None and any(each.state in PREPARED for each in owned.transactions.values())

    def all_logs(self) -> Iterable[Any]:
        """Return the logs it has."""
        return (each.log for each in self.hosted())

    def leftovers(self) -> list[str]:
        """Partitions of which it has a log, though it is no replica."""
        logs = {} if self._broker is None else self._broker.logs.logs
        is_replica = self._world.zookeeper.is_replica
        return [
            f"{self.host} has {topic}-{each}" for topic, each in logs if not is_replica(self.broker_id, topic, each)
        ]

    def check_controller(self) -> None:
        """Let the controller, if it is here and has nothing half done, say whether what it knows agrees."""
        runner = None if self._broker is None else self._broker._controller
        if runner is not None and runner.is_active and not runner._machine.is_busy:
            runner.state.check()

    def keeps(self, topic: str, partition: int, offset: int) -> bool:
        """Whether a record that it has outlives a loss of power; true where nobody promised that, or it is unknown."""
        found = self.log(topic, partition) if self._world.flushes else None
        if found is None or any(disk.fails and not disk.fails_syncs_only for disk in self.disks):
            return True
        segment = next(each for each in reversed(found.segments) if each.base_offset <= offset)
        path, size = segment.file.path, segment.find(offset + 1)
        return all(disk.has_synced(path, size) for disk in self.disks if path.startswith(f"{disk.folder}/"))

    def log(self, topic: str, partition: int) -> Any:
        """Return a partition's log while it serves."""
        return self._broker.logs.get(topic, partition) if self.is_serving and self._broker is not None else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a seed ended."""

    seed: int
    reason: str
    """Empty: nothing was found."""
    virtual_s: float
    turns: int
    faults: int


class World:
    """Everything there is."""

    def __init__(self, seed: int, folder: Path, trace: IO[str]) -> None:
        self.simulation = Simulation(seed)
        self.rng = random.Random(f"{seed}-events")
        self.folder = folder
        self.flushes = self.rng.random() < FLUSHES
        """Whether what is acknowledged was synced before: then all may lose their power at once."""
        self.weak = self.rng.randint(1, BROKERS)
        """The one broker whose disks may fail."""
        self.network = Network(self.simulation)
        outside.begin(self.simulation, self.network)
        self.zookeeper = ZooKeeperServer(self.network, self.simulation.machine(HOST))
        self.brokers = {number: SimulatedBroker(self, number) for number in range(1, BROKERS + 1)}
        self.bootstrap = ",".join(f"{each.host}:9092" for each in self.brokers.values())
        self.promises = Promises(self)
        self.changes = AcknowledgedChanges(lambda: self.simulation.now)
        self.simulation.after_turn = self.promises.after_turn
        self.simulation.next_look = 0.0
        self.workload = self.rng.choice(list(WORKLOADS))
        self.events = 0
        self._trace = trace
        self._history = (folder / HISTORY_FILE).open("w")
        recorder = Recorder(self._history, lambda: int(self.simulation.now * 1e9))
        keys = [f"{TOPIC}:{number}" for number in range(PARTITIONS)]
        self.trial = Trial(None, recorder, "simulation", keys, [TOPIC])  # type: ignore[arg-type]
        self.markers: list[tuple[str, WriteTxnMarkersRequest]] = []
        """Of which transactions brokers have told others: whom, and what."""
        self.has_epoch_each = self.rng.random() < HAS_EPOCH_EACH
        """Whether each transaction has an epoch of its own."""
        self.verifies = self.rng.random() < VERIFIES
        """Whether brokers ask whether what is produced belongs to a transaction."""
        coordinators.take_over(
            self.promises.is_broken,
            lambda broker_id, request: self.markers.append((self.brokers[broker_id].host, request)),
            self.rng.random() < HAS_FEW_EPOCHS,
        )
        self._undo: list[Undo] = []
        self._frozen: list[tuple[Machine, asyncio.Task[None]]] = []
        """Clients of which others believe that they are dead."""
        self._inspections: list[asyncio.Task[None]] = []
        """Each is over before the last phase."""
        self.machines: dict[Machine, SimulatedBroker] = {}
        """Those of brokers that run."""
        self.is_calm = True
        """Nothing is broken at the moment."""
        self.tell(f"world: {self.workload}, {'flushes' if self.flushes else f'disks of broker {self.weak} may fail'}")

    def tell(self, text: str) -> None:
        """Write a line of the trace."""
        self._trace.write(f"{self.simulation.now - STARTED_AT_S:10.6f} {text}\n")

    # --- brokers ---

    def start(self, broker_id: int) -> None:
        """Start a broker unless it runs."""
        self.tell(f"world: broker {broker_id} is started")
        self.brokers[broker_id].start()

    def kill(self, broker_id: int) -> None:
        """Kill a broker."""
        self.brokers[broker_id].kill()

    def stop(self, broker_id: int) -> None:
        """Stop a broker in order."""
        self.brokers[broker_id].stop()

    def controller_id(self) -> int | None:
        """Return who is the controller, as ZooKeeper has it."""
        return self.zookeeper.controller_id()

    # --- the course of things ---

    def play(self, seconds: float) -> str:
        """Live through all phases; returns why it is not as it must be, or nothing."""
        try:
            self._begin()
            self._work(seconds)
            return self._heal_and_read()
        except (PromiseBroken, AssertionError) as error:
            return f"{type(error).__name__}: {error}"
        except StandsStill as error:
            return f"all stands still; they wait for\n{error}"
        finally:
            self._history.close()

    def _begin(self) -> None:
        for broker_id in self.brokers:
            self.start(broker_id)
        if not self.simulation.run(READY_S, lambda: all(each.is_serving for each in self.brokers.values())):
            raise PromiseBroken(f"not every broker serves after {READY_S:g} s")
        admin = self.simulation.machine("admin")
        for name, partitions, replicas in ((TOPIC, PARTITIONS, BROKERS), (LONELY, BROKERS, 1)):
            made = admin.create_task(clients.create_topic(self.bootstrap, name, partitions, replicas))
            if not self.simulation.run(READY_S, made.done):
                raise PromiseBroken(f"no topic could be created within {READY_S:g} s")

    def _work(self, seconds: float) -> None:
        driver = self.simulation.machine("driver")
        tasks = [
            driver.create_task(self._keep_alive(kind, f"{kind.__name__.lower()}-{number}"))
            for number, kind in enumerate((*WORKLOADS[self.workload], Stranger))
        ]
        nemesis = driver.create_task(self._break(seconds))
        self.simulation.run(seconds + 10 * max(FAULTS_S), nemesis.done)
        nemesis.result()
        self.trial.stop.set()
        self.heal()
        if not self.simulation.run(END_S, lambda: all(task.done() for task in tasks)):
            raise PromiseBroken(f"a client does not end within {END_S:g} s")
        for task in tasks:
            task.result()
        for machine, task in self._frozen:
            if task.done():
                task.result()
            self.leave(machine)

    async def _keep_alive(self, kind: type[clients.Process], host: str) -> None:
        """One process after the other."""
        stop = self.trial.stop
        while not stop.is_set():
            machine = self.simulation.machine(host)
            process = self._process(kind, host)
            task = clients.begin(machine, process)
            dies_at = self.simulation.now + self.rng.expovariate(1 / CLIENT_LIFE_S) + 1
            while not task.done() and (stop.is_set() or self.simulation.now < dies_at):  # noqa: ASYNC110
                await asyncio.sleep(clients.PAUSE_S)
            if task.done():
                task.result()  # a mistake of the simulation's own ends it
            if not task.done() and self.rng.random() < FROZEN:
                process.is_replaced = True
                machine.stands_still_until = self.simulation.now + self.rng.random() * CLIENT_LIFE_S
                self._frozen.append((machine, task))
            else:
                self.leave(machine)

    def _process(self, kind: type[AnyProcess], line: str) -> AnyProcess:
        """Return a new one, who knows whom to tell of what is acknowledged, and where to ask who leads."""
        process = kind(self.trial, self.bootstrap, random.Random(self.rng.random()), line)
        if isinstance(process, clients.Sending | Visitor):
            process.on_acknowledged = self._acknowledged
        if isinstance(process, Visitor):
            process.leader = self._who_leads
            process.epochs = self._epochs_of
        if isinstance(process, LateMarkers) and self.has_epoch_each:
            process.markers = self.markers
            process.producer = self._producer_at
        return process

    def inspect(self, inspection: Callable[[Stranger], Coroutine[Any, Any, None]]) -> None:
        """Let somebody look at what has just broken; what comes of it is known before the last phase."""
        host = f"inspector-{self.events}"
        machine = self.simulation.machine(host)
        self._inspections.append(machine.create_task(inspection(self._process(Stranger, host)), name=host))

    def leave(self, machine: Machine) -> None:
        """A client's machine is gone."""
        self.simulation.kill(machine)
        self.network.died(machine)

    def _who_leads(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Return one of those who take themselves for the leader, and the leader epoch it knows."""
        leading = [
            (broker.host, each.state.leader_epoch)
            for broker in self.brokers.values()
            if broker.is_serving
            for each in broker.hosted()
            if (each.topic, each.partition) == (topic, partition) and each.state.role is Role.LEADER
        ]
        return self.rng.choice(leading) if leading else None

    def _producer_at(self, host: str, topic: str, partition: int, producer_id: int) -> Any:
        """Return what the leader on a host knows of a producer, None where it knows nothing, or none is there."""
        (broker,) = (each for each in self.brokers.values() if each.host == host)
        hosted = broker.replicas.hosted.get((topic, partition)) if broker.is_serving else None
        if hosted is None or hosted.state.role is not Role.LEADER:
            return None
        return hosted.log.producers.state.producers.get(producer_id)

    def _epochs_of(self, host: str) -> tuple[int, int]:
        """Return the controller's epoch and the broker's own that the broker of a host knows."""
        (broker,) = (each for each in self.brokers.values() if each.host == host)
        return broker.epochs()

    def _acknowledged(self, key: str, offset: int, copies: int = clients.MIN_IN_SYNC) -> None:
        topic, _, partition = key.rpartition(":")
        self.promises.acknowledge(topic, int(partition), offset, copies)

    async def _break(self, seconds: float) -> None:
        end = self.simulation.now + seconds
        while self.simulation.now < end:
            await asyncio.sleep(self.rng.expovariate(1 / HEALTHY_S))
            for _ in range(self.rng.choice((1, 2, 2, 3))):
                (event,) = self.rng.choices(list(EVENTS), list(EVENTS.values()))
                text, undo = event(self)
                self.is_calm = False
                self.events += 1
                self.tell(f"world: {text}")
                self.trial.recorder.record(NEMESIS, INFO, event.__name__, [text])
                self._undo.append(undo)
                await asyncio.sleep(self.rng.choice(FAULTS_S) * (0.5 + self.rng.random()))
            self.heal()

    def heal(self) -> None:
        """Undo all faults."""
        undo, self._undo = self._undo, []
        for each in reversed(undo):
            each()
        self.network.mend()
        self.zookeeper.oddity = ""
        self.is_calm = True
        for machine in self.simulation.machines:
            machine.stands_still_until = 0.0
        for broker_id, broker in self.brokers.items():
            if not broker.runs:
                self.start(broker_id)
        self.tell("world: healed")

    def _all_serve(self) -> bool:
        """Whether they do; one that was ending in order when all was healed is started again."""
        for broker in self.brokers.values():
            broker.start()
        return all(each.is_serving for each in self.brokers.values())

    def _heal_and_read(self) -> str:
        """Read all once it is known everywhere who leads: until then a former leader may answer in good faith."""
        self.heal()
        self.simulation.run(SETTLED_S)
        for each in self._inspections:
            each.result()
        if not self.simulation.run(SERVING_S, self._all_serve):
            raise PromiseBroken(f"not every broker serves {SETTLED_S + SERVING_S:g} s after all was healed")
        if not self.simulation.run(READY_S, lambda: not self.zookeeper.not_in_sync(TOPIC)):
            late = ", ".join(self.zookeeper.not_in_sync(TOPIC))
            raise PromiseBroken(f"replicas of {late} are not in sync {READY_S:g} s after all was healed")
        if not self.simulation.run(READY_S, lambda: not self.changes.lost(self.zookeeper.register)):
            raise PromiseBroken("; ".join(self.changes.lost(self.zookeeper.register)))
        if not self.simulation.run(READY_S, lambda: not self._unfinished()):
            raise PromiseBroken(f"{READY_S:g} s after all was healed: {'; '.join(self._unfinished())}")
        reader = clients.FinalReading(self.trial, self.bootstrap, self.rng)
        task = clients.begin(self.simulation.machine("final-reader"), reader)
        self.simulation.run(FINAL_S, task.done)
        self._history.flush()
        ended = reader.ended if task.done() else f"the last phase takes more than {FINAL_S:g} s: {reader.ended}"
        settings = {"workload": self.workload, "isolation": "read_committed", "final_phase": ended}
        (self.folder / SETTINGS_FILE).write_text(json.dumps(settings))
        if ended != COMPLETE:
            return ended
        self.promises.compare_logs()
        judgement = judge_folder(self.folder)
        if judgement.verdict == VALID or judgement.reason == NOTHING_DONE:
            return ""
        return f"{judgement.verdict}: {judgement.reason}"

    def _unfinished(self) -> list[str]:
        """What administrators asked for and is not done yet, on the brokers' disks too."""
        leftovers = (each.leftovers() for each in self.brokers.values())
        return [*self.zookeeper.under_way(), *(each for some in leftovers for each in some)]


class _Lines(logging.Handler):
    """Log lines go into the trace, in virtual time."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            machine = asyncio.get_running_loop()
        except RuntimeError:
            host = "-"
        else:
            host = machine.host if isinstance(machine, Machine) else "-"
        text = record.getMessage().replace(str(self._world.folder), "")
        if record.exc_info and record.exc_info[1] is not None:
            text += f" ({record.exc_info[1]!r})"
        self._world.tell(f"{host}: {record.levelname} {text}")


def play(seed: int, seconds: float, folder: Path) -> Verdict:
    """Play one seed in an empty folder; for a process in which `outside.take_over` was called."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / TRACE_FILE).open("w") as trace:
        world = World(seed, folder, trace)
        handler = _Lines(world)
        root = logging.getLogger()
        root.setLevel(logging.INFO)
        root.addHandler(handler)
        try:
            reason = world.play(seconds)
        finally:
            root.removeHandler(handler)
        world.tell(f"world: {reason or 'all promises held'}")
    return Verdict(seed, reason, world.simulation.now - STARTED_AT_S, world.simulation.turns, world.events)

"""Clients of the simulated cluster: kbroker's own for asyncio; what they did is written down as in `kbroker verify`.

Each process is a machine of its own. One whose operation ended as nobody knows is over, and now and then one is killed
in the middle of its work; a new process takes its place.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kbroker.aio import Admin, Consumer, Producer
from kbroker.client.errors import ClientError
from kbroker.protocol.errors import KafkaError
from kbroker.verify.clients import Incoming, Outcome, Outgoing, split_key
from kbroker.verify.history import INFO, INVOKE, OK
from kbroker.verify.workers import Trial, by_key, told, type_of
from tests.simulation.loop import Machine

log = logging.getLogger(__name__)

FAILURES = (ClientError, KafkaError, OSError)
DELIVERY_S = 4.0
REQUEST_S = 1.5
POLL_S = 0.1
PAUSE_S = 0.2
THINK_S = 0.04
"""On the average, between two operations."""
BETWEEN_S = 0.004
"""Between two records that are on their way together."""
MOST_RECORDS = 500
MIN_IN_SYNC = 2


class Process:
    """One process of the workload, in its machine."""

    def __init__(self, trial: Trial, bootstrap: str, rng: random.Random, line: str = "") -> None:
        self.trial = trial
        self.line = line
        """What it has in common with those whose place it takes."""
        self.bootstrap = bootstrap
        self.rng = rng
        self.number = trial.processes()
        self.is_replaced = False
        """Another has taken its place, while it stands still."""

    async def live(self) -> None:
        """Work until the trial stops or nobody knows how an operation ended."""
        try:
            await self.work()
        except FAILURES as error:
            log.info("process %d is over: %s: %s", self.number, type(error).__name__, error)

    async def work(self) -> None:
        """Do one operation after the other."""
        raise NotImplementedError

    async def pause(self) -> None:
        """Think."""
        await asyncio.sleep(self.rng.expovariate(1 / THINK_S))

    def record(self, type: str, f: str, operations: list[Any], **more: Any) -> None:
        """Write an event of the process."""
        self.trial.recorder.record(self.number, type, f, operations, **more)


class Sending(Process):
    """Sends some records at a time, and waits for what becomes of them."""

    on_acknowledged: Callable[[str, int], None] = staticmethod(lambda key, offset: None)
    """Told of each record that is safe."""

    async def work(self) -> None:
        """Send."""
        async with Producer(self.bootstrap, **producer_settings()) as producer:
            while not self.trial.stop.is_set():
                if not await self._send(producer):
                    return
                await self.pause()

    async def _send(self, producer: Producer) -> bool:
        count = self.rng.choice((1, 1, 2, 4, 8))
        records = [Outgoing(self.rng.choice(self.trial.keys), self.trial.values()) for _ in range(count)]
        self.record(INVOKE, "send", [told(each, Outcome()) for each in records])
        outcomes = await sent(producer, records, self.rng.choice((0.0, BETWEEN_S)))
        kind, error = type_of(outcomes)
        done = [told(each, outcome) for each, outcome in zip(records, outcomes, strict=True)]
        self.record(kind, "send", done, error=error)
        for each, outcome in zip(records, outcomes, strict=True):
            if outcome.error is None and outcome.offset is not None:
                self.on_acknowledged(each.key, outcome.offset)
        return kind != INFO


def producer_settings() -> dict[str, Any]:
    """Return what all producers have."""
    return {
        "acks": "all",
        "linger_ms": 2,
        "delivery_timeout_ms": int(DELIVERY_S * 1000),
        "request_timeout_ms": int(REQUEST_S * 1000),
        "max_block_ms": int(DELIVERY_S * 1000),
    }


async def sent(producer: Producer, records: Sequence[Outgoing], between_s: float = 0.0) -> list[Outcome]:
    """Send records in their order and return what became of each; with time between them they are several batches."""
    outcomes: list[Awaitable[Any] | Outcome] = []
    for each in records:
        topic, partition = split_key(each.key)
        try:
            outcomes.append(await producer.send(topic, str(each.value).encode(), partition=partition))
        except FAILURES as error:
            outcomes.append(Outcome(error=str(error), is_definite=True))
        if between_s:
            await asyncio.sleep(between_s)
    return [each if isinstance(each, Outcome) else await _outcome(each) for each in outcomes]


async def _outcome(delivery: Awaitable[Any]) -> Outcome:
    try:
        offset = (await delivery).offset
    except FAILURES as error:
        return Outcome(error=str(error) or type(error).__name__)
    return Outcome(offset if offset is not None and offset >= 0 else None)


class Reading(Process):
    """Reads what it assigns itself, now and then something else."""

    async def work(self) -> None:
        """Assign and read."""
        async with new_consumer(self.bootstrap) as consumer:
            known: dict[str, int] = {}
            await self._assign(consumer, known)
            while not self.trial.stop.is_set():
                if self.rng.random() < 0.01:
                    await self._assign(consumer, known)
                self.record(INVOKE, "poll", [["poll"]])
                try:
                    found = incoming(await consumer.poll(POLL_S, MOST_RECORDS))
                except FAILURES as error:
                    self.record(INFO, "poll", [["poll", {}]], error=str(error))
                    raise
                self.record(OK, "poll", [["poll", by_key(found)]])
                known.update({each.key: each.offset + 1 for each in found})
                await self.between(consumer)
                await self.pause()

    async def between(self, consumer: Consumer) -> None:
        """What it does beside."""

    async def _assign(self, consumer: Consumer, known: Mapping[str, int]) -> None:
        keys = list(self.trial.keys)
        wanted = sorted(self.rng.sample(keys, self.rng.randint(1, len(keys))))
        self.record(INVOKE, "assign", wanted)
        await consumer.assign([split_key(key) for key in wanted])
        for key in wanted:
            consumer.seek(split_key(key), known.get(key, 0))
        self.record(OK, "assign", wanted)


def new_consumer(bootstrap: str, isolation_level: str = "read_committed", **more: Any) -> Consumer:
    """Return a consumer as workloads have it."""
    return Consumer(
        bootstrap,
        isolation_level=isolation_level,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        request_timeout_ms=int(2 * REQUEST_S * 1000),
        **more,
    )


def incoming(records: Sequence[Any]) -> list[Incoming]:
    """Return records as histories have them."""
    return [Incoming(f"{each.topic}:{each.partition}", each.offset, each.value, each.key) for each in records]


async def create_topic(bootstrap: str, name: str, partitions: int, replicas: int) -> None:
    """Create a topic, and again until it is known."""
    configs = {"retention.ms": "-1", "min.insync.replicas": str(MIN_IN_SYNC)}
    while True:
        try:
            async with Admin(bootstrap, request_timeout_ms=int(REQUEST_S * 1000)) as admin:
                if name in await admin.describe_topics():
                    return
                await admin.create_topic(name, partitions=partitions, replication_factor=replicas, configs=configs)
        except FAILURES:
            await asyncio.sleep(PAUSE_S)


class FinalReading(Process):
    """The last phase: every partition is read to its end, and it is asked which topics there are."""

    ended = "nothing could be read"
    """`complete`, or what could not be read."""

    async def work(self) -> None:
        """Again and again until all was read."""
        while self.ended != "complete":
            try:
                self.ended = await self._read_all()
            except FAILURES as error:
                self.ended = str(error)
                await asyncio.sleep(PAUSE_S)
                self.number = self.trial.processes()
        await self._ask_committed()
        await self._list_topics()

    async def _read_all(self) -> str:
        keys = list(self.trial.keys)
        partitions = [split_key(key) for key in keys]
        async with new_consumer(self.bootstrap, "read_uncommitted") as other:
            ends = await other.end_offsets(partitions)
        async with new_consumer(self.bootstrap) as consumer:
            self.record(INVOKE, "assign", keys, final=True)
            await consumer.assign(partitions)
            for each in partitions:
                consumer.seek(each, 0)
            self.record(OK, "assign", keys, final=True, from_beginning=True)
            while any(consumer.positions.get(each, 0) < end for each, end in ends.items()):
                self.record(INVOKE, "poll", [["poll"]], final=True)
                found = incoming(await consumer.poll(0.2, MOST_RECORDS))
                self.record(OK, "poll", [["poll", by_key(found)]], final=True)
        return "complete"

    async def _ask_committed(self) -> None:
        async with new_consumer(self.bootstrap, group_id=self.trial.group) as consumer:
            asked = [["committed", self.trial.group, key] for key in self.trial.keys]
            self.record(INVOKE, "committed", asked, final=True)
            found = await consumer.committed([split_key(key) for key in self.trial.keys])
            answers = [
                ["committed", self.trial.group, f"{at.topic}:{at.partition}", -1 if each is None else each.offset]
                for at, each in found.items()
            ]
            self.record(OK, "committed", answers, final=True)

    async def _list_topics(self) -> None:
        async with Admin(self.bootstrap, request_timeout_ms=int(REQUEST_S * 1000)) as admin:
            self.record(INVOKE, "admin", [["topics"]], final=True)
            topics = await admin.describe_topics()
            found = {name: len(topic.partitions) for name, topic in topics.items()}
            self.record(OK, "admin", [["topics", found]], final=True)


def begin(machine: Machine, process: Process) -> asyncio.Task[None]:
    """Let a process live in its machine."""
    return machine.create_task(process.live(), name=f"process-{process.number}")

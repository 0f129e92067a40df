"""Random histories of requests that wait for ends, at the coordinator of real logs: none is forgotten, all in order.

Producers begin, write, end, are fenced and go away; markers find no leader, records are acknowledged late; the
coordinator moves. `KBROKER_HISTORIES=500` plays more, `KBROKER_HISTORY=1234` one again, by the number in the failure.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kbroker.cluster.topic_names import TRANSACTIONS_TOPIC
from kbroker.coordinator import marker_sender, waiting_room
from kbroker.coordinator.transaction import EPOCH_EACH, Answer
from kbroker.protocol.errors import COORDINATOR_MOVED, ErrorCode, KafkaError
from kbroker.segment.log import AppendResult
from tests.fixtures.data_path import TOPIC
from tests.fixtures.data_path import TOPIC_ID as ID_OF_TOPIC
from tests.kbroker.coordinator.coordinated import NONE, TIMEOUT, Coordinated, leading

IDS = ("a", "b")
STEPS = 60
HISTORIES = int(os.environ.get("KBROKER_HISTORIES", "25"))
CHOSEN = os.environ.get("KBROKER_HISTORY")
NEW = pytest.param(random.randrange(1000, 1_000_000), id="new")
"""Another history in each run; its name is the same in all processes of a run."""
SEEDS = [int(CHOSEN)] if CHOSEN else [*range(HISTORIES), NEW]
NOT_NOW, UNKNOWN = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_PRODUCER_ID_MAPPING

Producer = tuple[int, int]


@dataclass(eq=False)
class Asked:
    """A request, in the reign of one coordinator; `told`: where a Produce hears what came of it."""

    name: str
    reign: int
    task: asyncio.Task[Answer] | None = None
    told: list[ErrorCode] | None = None
    begins: bool = False
    is_gone: bool = False
    """Its client went away."""


@dataclass
class History:
    """What happens, drawn from one seed."""

    coordinated: Coordinated
    draw: random.Random
    asked: list[Asked] = field(default_factory=list)
    known: dict[str, list[Producer]] = field(default_factory=lambda: {name: [(100, 0)] for name in IDS})
    """(producer id, epoch) as clients know them, the latest last."""
    late: list[Callable[[], None]] = field(default_factory=list)
    """Acknowledgements of records of the coordinator that were held up."""
    is_slow: bool = False
    reign: int = 0

    def hold_acknowledgements(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """While `is_slow`, let what is appended count later."""
        append_then: Callable[..., None] = self.coordinated.played.replicas.append_then

        def append(topic: str, *rest: Any) -> None:
            *before, origin, done, verified = rest

            def later(outcome: AppendResult | KafkaError) -> None:
                if self.is_slow and topic == TRANSACTIONS_TOPIC:
                    self.late.append(lambda: done(outcome))
                else:
                    done(outcome)

            append_then(topic, *before, origin, later, verified)

        monkeypatch.setattr(self.coordinated.played.replicas, "append_then", append)

    def acknowledge(self, all_of_them: bool) -> None:
        """Let what was held up count: a partition's first is told first."""
        self.is_slow = self.is_slow and not all_of_them
        while self.late:
            self.late.pop(0)()
            if not all_of_them:
                break

    def lead_topic(self, leader: int) -> None:
        """Have the markers of the topic's partitions find their leader, or none."""
        self.coordinated.played.tell(TOPIC, ID_OF_TOPIC, range(3), leader=leader)

    # --- requests ---------------------------------------------------------------------------------------------

    def producer(self, name: str) -> Producer:
        """Return the one who asks: mostly the latest, or one that it has fenced."""
        known = self.known[name]
        return known[-1] if self.draw.random() < 0.9 else self.draw.choice(known[-3:])

    def ask(self, name: str, question: Awaitable[Answer], begins: bool = False) -> None:
        async def answered() -> Answer:
            answer = await question
            if answer.error is NONE and answer.producer_id >= 0:
                self.known[name].append((answer.producer_id, answer.producer_epoch))
            return answer

        self.asked.append(Asked(name, self.reign, asyncio.ensure_future(answered()), begins=begins))

    def begin(self, name: str) -> None:
        self.ask(name, self.coordinated.transactions.init_producer_id(name, 60_000, None), begins=True)

    def add(self, name: str) -> None:
        partitions = [(TOPIC, self.draw.randrange(3))]
        transactions = self.coordinated.transactions
        self.ask(name, transactions.add_partitions(name, *self.producer(name), partitions, self.version))

    def add_by_produce(self, name: str) -> None:
        told: list[ErrorCode] = []
        partitions = [(TOPIC, self.draw.randrange(3))]
        self.coordinated.transactions.add_by_produce(name, *self.producer(name), partitions, told.append)
        self.asked.append(Asked(name, self.reign, told=told))

    def end(self, name: str) -> None:
        transactions = self.coordinated.transactions
        end = transactions.end_each if self.version else transactions.end
        self.ask(name, end(name, *self.producer(name), self.draw.random() < 0.7))

    @property
    def version(self) -> int:
        """The transaction.version that clients go by."""
        return int(self.coordinated.features.transaction_version)

    async def go_away(self) -> None:
        """A client closes its connection while it waits."""
        await asyncio.sleep(0)  # what has not been begun cannot be waited for
        waiting = [each for each in self.asked if each.task is not None and not each.task.done()]
        if waiting:
            gone = self.draw.choice(waiting)
            assert gone.task is not None
            gone.is_gone = gone.task.cancel()

    # --- a history --------------------------------------------------------------------------------------------

    async def move(self) -> None:
        """Another broker coordinates for a while."""
        await self.coordinated.lead(leader=2, replicas=(1, 2))
        self.acknowledge(all_of_them=True)  # of a log that nobody waits for any more
        self.reign += 1
        if self.draw.random() < 0.5:
            self.try_one(self.draw.choice(IDS))
        await self.coordinated.lead()
        self.reign += 1

    def try_one(self, name: str) -> None:
        """Ask something."""
        request = self.draw.choices((self.begin, self.add, self.add_by_produce, self.end), (3, 3, 3, 4))[0]
        with suppress(KafkaError):  # told at once; check() looks at those that are told later
            request(name)

    async def step(self) -> None:
        """One thing happens, and some turns of the loop go by, or none."""
        what = self.draw.random()
        if what < 0.74:
            self.try_one(self.draw.choice(IDS))
        elif what < 0.80:
            await self.go_away()
        elif what < 0.84:
            self.lead_topic(self.draw.choice((1, -1)))
        elif what < 0.89:
            self.is_slow = True
        elif what < 0.98:
            self.acknowledge(self.draw.random() < 0.3)
        else:
            await self.move()
        for _ in range(self.draw.choice((0, 0, 1, 2, 5))):
            await asyncio.sleep(0)

    async def finish(self) -> None:
        """Nothing is in the way any more: everybody has an answer, and the room is empty."""
        self.lead_topic(1)
        self.acknowledge(all_of_them=True)
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(*(each.task for each in self.asked if each.task is not None), return_exceptions=True)
            while any(each.told == [] for each in self.asked):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.002)
        room = self.coordinated.transactions._waiting
        assert (room._count, room._waiting) == (0, {})

    def check(self) -> None:
        """Each was answered once, nobody was sent away to come again, and who came later shut the earlier out."""
        begun: dict[tuple[str, int], Producer] = {}
        for each in self.asked:
            if each.task is None:
                assert each.told is not None
                assert len(each.told) == 1
                assert each.told[0] is not NOT_NOW
            elif not each.task.cancelled():
                failure = each.task.exception()
                assert not each.is_gone or failure is None, failure
                if failure is not None:
                    assert isinstance(failure, KafkaError), failure
                    assert failure.code in (*COORDINATOR_MOVED, UNKNOWN), failure
                    continue
                answer = each.task.result()
                assert answer.error is not NOT_NOW, each
                if each.begins and answer.error is NONE:
                    producer = answer.producer_id, answer.producer_epoch
                    assert begun.get((each.name, each.reign), (-1, -1)) < producer, each
                    begun[each.name, each.reign] = producer
            else:
                assert each.is_gone, each


@pytest.mark.parametrize("seed", SEEDS)
async def test_whoever_waits_for_an_end_is_answered_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(marker_sender, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(waiting_room, "MOST_OF_A_NAME", STEPS)
    async with leading(tmp_path) as coordinated:
        monkeypatch.setattr(coordinated.transactions._waiting, "_longest_s", TIMEOUT)
        coordinated.features.transaction_version = EPOCH_EACH * (seed % 2)
        history = History(coordinated, random.Random(seed))
        history.hold_acknowledgements(monkeypatch)
        for name in IDS:
            history.begin(name)
        for _ in range(STEPS):
            await history.step()
        await history.finish()
        history.check()
        for name in IDS:
            assert (await coordinated.init(name)).error is NONE

"""The workloads of `kbroker verify` that are played here: records, transactions, a group. One is drawn per seed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kbroker.aio import Consumer, Producer
from kbroker.client.group.listener import RebalanceListener
from kbroker.client.types import TopicPartition
from kbroker.verify.clients import Outcome, Outgoing, split_key
from kbroker.verify.history import FAIL, INFO, INVOKE, OK
from kbroker.verify.workers import by_key, told
from tests.simulation.clients import (
    FAILURES,
    MOST_RECORDS,
    POLL_S,
    Process,
    Reading,
    Sending,
    incoming,
    new_consumer,
    producer_settings,
    sent,
)
from tests.simulation.impostors import Impostor
from tests.simulation.late_markers import LateMarkers
from tests.simulation.promises import PromiseBroken

TRANSACTION_S = 3.0
"""What a producer left open is aborted by the cluster after so long."""
ABORTED = 0.1
"""How often a transaction is aborted on purpose."""
AT_ONCE = 0.4
"""How often the next one begins at once, before the markers of this one are written."""
LEFT_OPEN_S = 0.3
OVER = "INVALID_TXN_STATE"


class Aborted(Exception):
    """A transaction is given up, by whom the text says."""


class Transacting(Process):
    """Reads and sends in transactions. Whoever takes its place has its transactional id, and shuts it out."""

    async def work(self) -> None:
        """One transaction after the other."""
        keys = list(self.trial.keys)
        settings = {
            **producer_settings(),
            "transactional_id": f"{self.trial.name}-{self.line}",
            "transaction_timeout_ms": int(TRANSACTION_S * 1000),
        }
        async with Producer(self.bootstrap, **settings) as producer, new_consumer(self.bootstrap) as consumer:
            await self._go_to(consumer, dict.fromkeys(keys, 0))
            while not self.trial.stop.is_set() and await self._transact(producer, consumer):
                if self.rng.random() > AT_ONCE:
                    await self.pause()

    async def _go_to(self, consumer: Consumer, positions: Mapping[str, int]) -> None:
        self.record(INVOKE, "assign", list(positions))
        await consumer.assign([split_key(key) for key in positions])
        for key, offset in positions.items():
            consumer.seek(split_key(key), offset)
        self.record(OK, "assign", list(positions))

    async def _transact(self, producer: Producer, consumer: Consumer) -> bool:
        """Returns whether the process goes on."""
        before = {f"{at.topic}:{at.partition}": offset for at, offset in consumer.positions.items()}
        wanted = [self._draw() for _ in range(self.rng.randint(1, 4))]
        self.record(INVOKE, "txn", [["poll"] if each is None else told(each, Outcome()) for each in wanted])
        done: list[Any] = []
        begun_at = asyncio.get_running_loop().time()
        try:
            await producer.begin()
            await self._body(producer, consumer, wanted, done)
            if self.rng.random() < ABORTED:
                raise Aborted("on purpose")
        except (*FAILURES, Aborted) as error:
            self._must_be_open(error, begun_at)
            undone = [["poll", {}] if each is None else told(each, Outcome()) for each in wanted[len(done) :]]
            return await self._give_up(producer, consumer, done + undone, error, before)
        commit_time = self.trial.recorder.elapsed
        try:
            await producer.commit()
        except FAILURES as error:
            self.record(INFO, "txn", done, commit_time=commit_time, error=str(error))
            return False
        self.record(OK, "txn", done, commit_time=commit_time)
        return True

    def _must_be_open(self, why: Exception, begun_at: float) -> None:
        """Nobody but its producer ends a transaction that is young, and whose producer nobody has replaced."""
        age_s = asyncio.get_running_loop().time() - begun_at
        if OVER in str(why) and age_s < TRANSACTION_S and not self.is_replaced:
            raise PromiseBroken(f"{self.line} is told after {age_s:.3f} s that its transaction is over: {why}")

    def _draw(self) -> Outgoing | None:
        if self.rng.random() < 0.3:
            return None
        return Outgoing(self.rng.choice(self.trial.keys), self.trial.values())

    async def _body(
        self, producer: Producer, consumer: Consumer, wanted: Sequence[Outgoing | None], done: list[Any]
    ) -> None:
        for each in wanted:
            if each is None:
                done.append(["poll", by_key(incoming(await consumer.poll(POLL_S / 2, MOST_RECORDS)))])
                continue
            (outcome,) = await sent(producer, [each])
            done.append(told(each, outcome))
            if outcome.error is not None:
                raise Aborted(outcome.error)
        if self.rng.random() < 0.2:
            await asyncio.sleep(self.rng.random() * LEFT_OPEN_S)

    async def _give_up(
        self, producer: Producer, consumer: Consumer, done: list[Any], why: Exception, before: Mapping[str, int]
    ) -> bool:
        """Nobody has asked to commit: whatever becomes of it, it did not happen."""
        ended_at = self.trial.recorder.elapsed
        try:
            await producer.abort()
        except FAILURES:
            # One that its producer left open ends when the cluster says so.
            self.record(FAIL, "txn", done, error=str(why))
            return False
        if self.is_replaced:  # whoever took its place has ended it, and nobody knows when
            self.record(FAIL, "txn", done, error=str(why))
        else:
            self.record(FAIL, "txn", done, error=str(why), commit_time=ended_at)
        await self._go_to(consumer, before)
        return True


class StableReading(Reading):
    """Asks now and then where partitions end for readers of committed records."""

    async def between(self, consumer: Consumer) -> None:
        """Ask."""
        if self.rng.random() > 0.2:
            return
        key = self.rng.choice(self.trial.keys)
        self.record(INVOKE, "ends", [["end", key]])
        try:
            found = await consumer.end_offsets([split_key(key)])
        except FAILURES as error:
            self.record(INFO, "ends", [["end", key]], error=str(error))
            raise
        self.record(OK, "ends", [["end", key, offset] for offset in found.values()])


class Changes(RebalanceListener):
    """Notes what changes hands."""

    def __init__(self) -> None:
        self._changed: dict[str, None] = {}

    def take(self) -> list[str] | None:
        """What was given or taken since the last call."""
        changed, self._changed = self._changed, {}
        return sorted(changed) or None

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Partitions are given."""
        self._changed.update((f"{each.topic}:{each.partition}", None) for each in partitions)

    on_revoked = on_lost = on_assigned


class Member(Process):
    """A member of a group: reads what it is given, and commits it."""

    async def work(self) -> None:
        """Read and commit."""
        changes = Changes()
        async with new_consumer(
            self.bootstrap, group_id=self.trial.group, session_timeout_ms=2000, heartbeat_interval_ms=500
        ) as consumer:
            self.record(INVOKE, "subscribe", list(self.trial.keys))
            await consumer.subscribe(list(self.trial.topics), listener=changes)
            self.record(OK, "subscribe", list(self.trial.keys))
            while not self.trial.stop.is_set():
                self.record(INVOKE, "poll", [["poll"]])
                try:
                    found = incoming(await consumer.poll(POLL_S, MOST_RECORDS))
                except FAILURES as error:
                    self.record(INFO, "poll", [["poll", {}]], error=str(error))
                    raise
                self.record(OK, "poll", [["poll", by_key(found)]], rebalances=changes.take())
                if found:
                    await self._commit(consumer, {each.key: each.offset + 1 for each in found})
                await self.pause()

    async def _commit(self, consumer: Consumer, offsets: Mapping[str, int]) -> None:
        operations = [["commit", self.trial.group, key, offset] for key, offset in offsets.items()]
        self.record(INVOKE, "commit", operations)
        try:
            await consumer.commit({split_key(key): offset for key, offset in offsets.items()})
        except FAILURES as error:
            self.record(INFO, "commit", operations, error=str(error))
            raise
        self.record(OK, "commit", operations)


WORKLOADS: Mapping[str, Sequence[type[Process]]] = {
    "append": (Sending, Sending, Reading, Reading),
    "txn": (Transacting, Transacting, StableReading, Impostor, LateMarkers),
    "group": (Sending, Member, Member),
}

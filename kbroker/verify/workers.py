"""Processes of a workload: each a thread that sends, reads, commits, crashes, and records what it did.

A process whose operation ended as nobody knows is over: a new one with a new number takes its place, as Jepsen has it.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbroker.verify.clients import ClientProblem, Incoming, Library, Outcome, Outgoing, Reader, Sender
from kbroker.verify.history import FAIL, INFO, INVOKE, OK, Recorder

POLL_SECONDS = 0.1
PAUSE_SECONDS = 0.2
"""After an error, and between tries to make a client."""
CRASH_EVERY_SECONDS = 12.0
"""On the average, for each process."""
RECORD_KEYS = 20
"""Of each process, where records have keys."""
LEFT_OPEN_SECONDS = 0.3
"""For so long a transaction may lie open, so that readers come by."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Trial:
    """What all processes of a test share."""

    clients: Library
    recorder: Recorder
    name: str
    """A prefix for topics, groups and transactional ids that no other test has."""
    keys: Sequence[str]
    topics: Sequence[str]
    stop: threading.Event = field(default_factory=threading.Event)
    values: Callable[[], int] = field(default_factory=lambda: itertools.count(1).__next__)
    processes: Callable[[], int] = field(default_factory=lambda: itertools.count(0).__next__)
    problems: list[str] = field(default_factory=list)
    """The last errors of clients, for the report."""
    failure: str = ""
    """What ended the test before its time, of ours: nobody knows what it would have found."""

    @property
    def group(self) -> str:
        """The group of all its members."""
        return f"{self.name}-group"

    def note(self, problem: object) -> None:
        """Remember an error."""
        self.problems.append(str(problem))
        del self.problems[:-20]

    def fail(self, who: str, error: Exception) -> None:
        """End the test: somebody failed whom no client's problem explains. The first is told."""
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{who} failed: {type(error).__name__}: {error} ({where.name}, line {where.lineno} of {where.filename})"
        log.error("%s", text, exc_info=error)
        self.failure = self.failure or text
        self.stop.set()


class Worker:
    """One line of processes, each in the other's place."""

    def __init__(self, trial: Trial, number: int, seed: int) -> None:
        self.trial = trial
        self.number = number
        self.rng = random.Random(f"{seed}-{number}")
        self.process = trial.processes()
        self._sender: Sender | None = None
        self._reader: Reader | None = None
        self._crash_at = 0.0
        self._draw_crash()

    def run(self) -> None:
        """Work until the test stops. What goes wrong in a way that nobody expects ends the test, and is told."""
        try:
            self._live()
        except Exception as error:
            self.trial.fail(f"{type(self).__name__} {self.number}", error)

    def _live(self) -> None:
        try:
            while not self.trial.stop.is_set():
                try:
                    self.step()
                except ClientProblem as problem:
                    self.trial.note(problem)
                    self.replace()
                    self.trial.stop.wait(PAUSE_SECONDS)
                if self.trial.recorder.elapsed / 1e9 > self._crash_at:
                    self._draw_crash()
                    self.replace()
        finally:
            self.crash()

    def step(self) -> None:
        """Do one operation; clients are made when there are none."""
        raise NotImplementedError

    def crash(self) -> None:
        """Let go of the clients."""
        if self._sender is not None:
            self._sender.crash()
            self._sender = None
        if self._reader is not None:
            self._reader.crash()
            self._reader = None

    def poll(self, reader: Reader) -> Sequence[Incoming]:
        """Ask for records; whoever asked records what came."""
        self.record(INVOKE, "poll", [["poll"]])
        try:
            return reader.poll(POLL_SECONDS)
        except ClientProblem as problem:
            self.record(INFO, "poll", [["poll", {}]], error=str(problem))
            raise

    def replace(self) -> None:
        """End the process; a new one takes its place."""
        self.crash()
        self.process = self.trial.processes()

    def _draw_crash(self) -> None:
        self._crash_at = self.trial.recorder.elapsed / 1e9 + self.rng.expovariate(1 / CRASH_EVERY_SECONDS) + 1

    def record(self, type: str, f: str, operations: list[Any], **more: Any) -> None:
        """Write an event of the process."""
        self.trial.recorder.record(self.process, type, f, operations, **more)


class SendingWorker(Worker):
    """Sends some records at a time, and waits for their acknowledgements."""

    is_keyed = False

    def step(self) -> None:
        """Send."""
        if self._sender is None:
            self._sender = self.trial.clients.sender()
        records = [self._draw() for _ in range(self.rng.choice((1, 1, 2, 4)))]
        self.record(INVOKE, "send", [_wanted(each) for each in records])
        outcomes = self._sender.send(records)
        type, error = type_of(outcomes)
        self.record(type, "send", [told(each, got) for each, got in zip(records, outcomes, strict=True)], error=error)
        if type == INFO:
            raise ClientProblem(error or "")

    def _draw(self) -> Outgoing:
        record_key = 1000 * self.number + self.rng.randrange(RECORD_KEYS) if self.is_keyed else None
        keys = self.trial.keys
        # A record key has its partition, as with any partitioner.
        key = keys[record_key % len(keys)] if record_key is not None else self.rng.choice(keys)
        return Outgoing(key, self.trial.values(), record_key)


class KeyedWorker(SendingWorker):
    """Sends records with keys of its own."""

    is_keyed = True


class ReadingWorker(Worker):
    """Reads what it assigns itself, now and then something else."""

    def __init__(self, trial: Trial, number: int, seed: int) -> None:
        super().__init__(trial, number, seed)
        self._positions: dict[str, int | None] = {}
        self._known: dict[str, int | None] = {}

    def step(self) -> None:
        """Assign, or read."""
        if self._reader is None:
            self._reader = self.trial.clients.reader()
            self._assign(self._reader)
        elif self.rng.random() < 0.01:
            self._assign(self._reader)
        found = self.poll(self._reader)
        self.record(OK, "poll", [["poll", by_key(found)]])
        self._positions.update({each.key: each.offset + 1 for each in found})

    def _assign(self, reader: Reader) -> None:
        keys = list(self.trial.keys)
        wanted = sorted(self.rng.sample(keys, self.rng.randint(1, len(keys))))
        self._known.update(self._positions)
        self.record(INVOKE, "assign", wanted)
        self._positions = {key: self._known.get(key) for key in wanted}
        try:
            reader.assign(self._positions)
        except ClientProblem as problem:
            self.record(INFO, "assign", wanted, error=str(problem))
            raise
        self.record(OK, "assign", wanted)


class StableReadingWorker(ReadingWorker):
    """Asks now and then where partitions end, too."""

    def step(self) -> None:
        """Read, and perhaps ask."""
        super().step()
        if self._reader is None or self.rng.random() > 0.3:
            return
        key = self.rng.choice(list(self.trial.keys))
        self.record(INVOKE, "ends", [["end", key]])
        try:
            found = self._reader.stable_ends([key])
        except ClientProblem as problem:
            self.record(INFO, "ends", [["end", key]], error=str(problem))
            raise
        self.record(OK, "ends", [["end", each, offset] for each, offset in found.items()])


class MemberWorker(Worker):
    """A member of a group: reads what it is given, and commits it; without `commits`, of a group of its own."""

    commits = True

    def step(self) -> None:
        """Subscribe, or read and commit."""
        if self._reader is None:
            group = self.trial.group if self.commits else f"{self.trial.name}-{self.process}"
            self._reader = self.trial.clients.reader(group)
            self.record(INVOKE, "subscribe", list(self.trial.keys))
            self._reader.subscribe(self.trial.topics)
            self.record(OK, "subscribe", list(self.trial.keys))
        found = self.poll(self._reader)
        self.record(OK, "poll", [["poll", by_key(found)]], rebalances=self._reader.rebalances() or None)
        if found and self.commits:
            self._commit(self._reader, {each.key: each.offset + 1 for each in found})

    def _commit(self, reader: Reader, offsets: Mapping[str, int]) -> None:
        operations = [["commit", self.trial.group, key, offset] for key, offset in offsets.items()]
        self.record(INVOKE, "commit", operations)
        try:
            reader.commit(offsets)
        except ClientProblem as problem:
            self.record(FAIL if problem.is_definite else INFO, "commit", operations, error=str(problem))
            if problem.is_definite and not problem.ends_process:
                return
            raise
        self.record(OK, "commit", operations)


class SubscribedWorker(MemberWorker):
    """Alone in its group, which never commits."""

    commits = False


class TransactionWorker(Worker):
    """Reads and sends in transactions."""

    def __init__(self, trial: Trial, number: int, seed: int) -> None:
        super().__init__(trial, number, seed)
        self._positions: dict[str, int | None] = dict.fromkeys(trial.keys)

    def step(self) -> None:
        """One transaction."""
        if self._sender is None:
            self._sender = self.trial.clients.sender(f"{self.trial.name}-{self.number}")
        if self._reader is None:
            self._reader = self.trial.clients.reader()
            self.record(INVOKE, "assign", list(self.trial.keys))
            self._reader.assign(self._positions)
            self.record(OK, "assign", list(self.trial.keys))
        wanted = [self._draw() for _ in range(self.rng.randint(1, 4))]
        before = dict(self._positions)
        self.record(INVOKE, "txn", [["poll"] if each is None else _wanted(each) for each in wanted])
        done: list[Any] = []
        try:
            self._sender.begin()
            self._body(self._sender, self._reader, wanted, done)
            fate = self.rng.random()
            if fate < 0.1:
                raise ClientProblem("aborted on purpose", is_definite=True, ends_process=fate < 0.02)
        except ClientProblem as problem:
            self._give_up(done + [_undone(each) for each in wanted[len(done) :]], problem, before)
            return
        self._commit(self._sender, done, before)

    def _draw(self) -> Outgoing | None:
        if self.rng.random() < 0.3:
            return None
        return Outgoing(self.rng.choice(list(self.trial.keys)), self.trial.values())

    def _body(self, sender: Sender, reader: Reader, wanted: Sequence[Outgoing | None], done: list[Any]) -> None:
        for each in wanted:
            if each is None:
                found = reader.poll(POLL_SECONDS / 2)
                done.append(["poll", by_key(found)])
                self._positions.update({record.key: record.offset + 1 for record in found})
            else:
                (outcome,) = sender.send([each])
                done.append(told(each, outcome))
                if outcome.error is not None:
                    raise ClientProblem(outcome.error)
        if self.rng.random() < 0.2:
            self.trial.stop.wait(self.rng.random() * LEFT_OPEN_SECONDS)

    def _commit(self, sender: Sender, done: list[Any], before: dict[str, int | None]) -> None:
        commit_time = self.trial.recorder.elapsed
        try:
            sender.commit()
        except ClientProblem as problem:
            type = FAIL if problem.is_definite else INFO
            # One that was refused may have been ended by the cluster long before.
            began = None if type == FAIL else commit_time
            self.record(type, "txn", done, commit_time=began, error=str(problem))
            self._go_back(before)
            if type == INFO or problem.ends_process:
                raise
            return
        self.record(OK, "txn", done, commit_time=commit_time)

    def _give_up(self, done: list[Any], problem: ClientProblem, before: dict[str, int | None]) -> None:
        """Nobody has asked to commit: whatever becomes of it, it did not happen."""
        is_over = False
        ended_at = self.trial.recorder.elapsed
        if self._sender is not None and (not problem.ends_process or self.rng.random() < 0.5):
            try:
                self._sender.abort()
                is_over = True
            except ClientProblem as error:
                self.trial.note(error)
        # One that its producer left open ends when the cluster says so.
        self.record(FAIL, "txn", done, error=str(problem), commit_time=ended_at if is_over else None)
        if not is_over:
            self._positions = before
            self.replace()
        else:
            self._go_back(before)

    def _go_back(self, before: dict[str, int | None]) -> None:
        self._positions = before
        if self._reader is not None:
            self._reader.assign(before)


def type_of(outcomes: Sequence[Outcome]) -> tuple[str, str | None]:
    """The type of an operation with these outcomes, and the first error."""
    errors = [each for each in outcomes if each.error is not None]
    if not errors:
        return OK, None
    is_certain = len(errors) == len(outcomes) and all(each.is_definite for each in errors)
    return (FAIL if is_certain else INFO), errors[0].error


def _wanted(record: Outgoing) -> list[Any]:
    if record.record_key is None:
        return ["send", record.key, record.value]
    return ["send", record.key, [None, record.value, str(record.record_key)]]


def _undone(record: Outgoing | None) -> list[Any]:
    return ["poll", {}] if record is None else _wanted(record)


def told(record: Outgoing, outcome: Outcome) -> list[Any]:
    """A send as the history has it: with its offset where the client was told."""
    if outcome.offset is None or outcome.error is not None:
        return _wanted(record)
    place: list[Any] = [outcome.offset, record.value]
    if record.record_key is not None:
        place.append(str(record.record_key))
    return ["send", record.key, place]


def by_key(records: Sequence[Incoming]) -> dict[str, list[list[Any]]]:
    """Records as the history has them; a value that is no number of ours stays as it is."""
    found: dict[str, list[list[Any]]] = {}
    for each in records:
        text = (each.value or b"").decode(errors="replace")
        place: list[Any] = [each.offset, int(text) if text.isdigit() and text.isascii() else text]
        if each.record_key is not None:
            place.append(each.record_key.decode(errors="replace"))
        found.setdefault(each.key, []).append(place)
    return found

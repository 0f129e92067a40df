"""Healthy histories: a simulated log service that keeps Kafka's promises, and processes that use it at the same time.

Each process is a generator that yields between its steps; a scheduler advances one at a time, drawn at random. So
sends, reads, transactions, rebalances, crashes and compaction interleave as they do with threads, and each seed is one
history.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kbroker.verify.history import FAIL, INFO, INVOKE, OK, Event

GROUP = "readers"
KEYS = ("t:0", "t:1", "t:2")
RECORD_KEYS = 4
Steps = Iterator[None]


@dataclass
class Transaction:
    """Undecided until `state` says otherwise."""

    state: str = "open"
    touched: set[str] = field(default_factory=set)


@dataclass
class Entry:
    """A record of the log; a marker has no value."""

    offset: int
    value: int | None
    transaction: Transaction | None = None
    record_key: int | None = None


class World:
    """The cluster, its clients and the history."""

    def __init__(self, seed: int, workload: str) -> None:
        self.rng = random.Random(seed)
        self.workload = workload
        self.events: list[Event] = []
        self.logs: dict[str, list[Entry]] = {key: [] for key in KEYS}
        self.ends = dict.fromkeys(KEYS, 0)
        self.now = 0
        self.next_value = 0
        self.next_process = 0
        self.members: dict[int, set[str]] = {}
        """Members of the group, and what is theirs."""
        self.rebalanced: dict[int, set[str]] = {}
        """What has changed hands since the member's last operation ended."""
        self.committed: dict[str, int] = {}
        self.generation = 0

    def record(self, process: int, type: str, f: str, operations: list[Any], **more: Any) -> Event:
        """Add an event."""
        self.now += self.rng.randint(1, 3)
        event = Event(len(self.events), process, type, f, operations, self.now, more)
        self.events.append(event)
        return event

    def process(self) -> int:
        """A new process."""
        self.next_process += 1
        return self.next_process

    def value(self) -> int:
        """A value that nobody has had."""
        self.next_value += 1
        return self.next_value

    def append(self, key: str, value: int | None, transaction: Transaction | None, record_key: int | None) -> int:
        """Store a record, and return its offset."""
        offset = self.ends[key]
        self.ends[key] += 1
        self.logs[key].append(Entry(offset, value, transaction, record_key))
        return offset

    def end(self, transaction: Transaction, state: str) -> None:
        """Decide a transaction: a marker in each partition."""
        transaction.state = state
        for key in sorted(transaction.touched):
            self.append(key, None, None, None)

    def read(self, key: str, position: int, most: int) -> tuple[list[list[int]], int]:
        """What a reader of committed records gets from a position on, and its new one."""
        stable = next((each.offset for each in self.logs[key] if _is_open(each)), self.ends[key])
        found: list[list[int]] = []
        for entry in self.logs[key]:
            if position <= entry.offset < stable and len(found) < most:
                position = entry.offset + 1
                if entry.value is not None and (entry.transaction is None or entry.transaction.state == "committed"):
                    found.append(_told(entry))
        return found, position

    def compact(self, key: str) -> None:
        """Keep each record key's newest record, and what has none."""
        newest = {each.record_key: each.offset for each in self.logs[key] if each.record_key is not None}
        self.logs[key] = [
            each for each in self.logs[key] if each.record_key is None or newest[each.record_key] == each.offset
        ]

    def rebalance(self) -> None:
        """Deal the partitions out anew."""
        self.generation += 1
        before = {member: set(keys) for member, keys in self.members.items()}
        for member in self.members:
            self.members[member] = set()
        for key in KEYS:
            if self.members:
                self.members[self.rng.choice(sorted(self.members))].add(key)
        for member, keys in self.members.items():
            self.rebalanced.setdefault(member, set()).update(keys ^ before[member])

    def play(self) -> list[Event]:
        """Run all processes to their ends, then read everything."""
        running = self._processes()
        while running:
            chosen = self.rng.choice(running)
            try:
                next(chosen)
            except StopIteration:
                running.remove(chosen)
        self._final()
        return self.events

    def _processes(self) -> list[Steps]:
        if self.workload == "txn":
            return [transactor(self) for _ in range(4)] + [reader(self) for _ in range(2)]
        if self.workload == "group":
            return [sender(self) for _ in range(3)] + [member(self) for _ in range(3)]
        own = {"compact": keyed_sender}.get(self.workload, sender)
        return [own(self) for _ in range(3)] + [reader(self) for _ in range(3)]

    def _final(self) -> None:
        process = self.process()
        self.record(process, INVOKE, "assign", list(KEYS), final=True)
        self.record(process, OK, "assign", list(KEYS), final=True, from_beginning=True)
        positions = dict.fromkeys(KEYS, 0)
        while any(positions[key] < self.ends[key] for key in KEYS):
            found = {}
            self.record(process, INVOKE, "poll", [["poll"]], final=True)
            for key in KEYS:
                places, positions[key] = self.read(key, positions[key], self.rng.randint(1, 9))
                if places:
                    found[key] = places
                elif self.logs[key] and self.logs[key][-1].offset < self.ends[key]:
                    positions[key] = max(positions[key], self.logs[key][-1].offset + 1)
            self.record(process, OK, "poll", [["poll", found]], final=True)
        for key in KEYS if self.workload == "group" else ():
            self.record(process, INVOKE, "committed", [["committed", GROUP, key]], final=True)
            offset = self.committed.get(key, -1)
            self.record(process, OK, "committed", [["committed", GROUP, key, offset]], final=True)


def _is_open(entry: Entry) -> bool:
    return entry.transaction is not None and entry.transaction.state == "open"


def _told(entry: Entry) -> list[Any]:
    place = [entry.offset, entry.value]
    return place if entry.record_key is None else [*place, entry.record_key]


def sender(world: World) -> Steps:
    """Sends; some answers are lost, and then a new process goes on."""
    process, rng = world.process(), world.rng
    for _ in range(rng.randint(3, 9)):
        key, values = rng.choice(KEYS), [world.value() for _ in range(rng.choice((1, 1, 2, 3)))]
        world.record(process, INVOKE, "send", [["send", key, value] for value in values])
        yield
        fate = rng.random()
        if fate < 0.1:
            world.record(process, FAIL, "send", [["send", key, value] for value in values])
            continue
        stored = []
        for value in values:
            stored.append([world.append(key, value, None, None), value])
            yield
        if fate < 0.25:
            world.record(process, INFO, "send", [["send", key, value] for value in values])
            process = world.process()
        else:
            world.record(process, OK, "send", [["send", key, place] for place in stored])
        yield


def keyed_sender(world: World) -> Steps:
    """Sends records with keys, the newer ones of which take the place of the older."""
    process, rng = world.process(), world.rng
    for _ in range(rng.randint(6, 12)):
        key, value, record_key = rng.choice(KEYS), world.value(), rng.randrange(RECORD_KEYS)
        world.record(process, INVOKE, "send", [["send", key, [None, value, record_key]]])
        yield
        offset = world.append(key, value, None, record_key)
        yield
        world.record(process, OK, "send", [["send", key, [offset, value, record_key]]])
        if rng.random() < 0.2:
            world.compact(rng.choice(KEYS))
        yield


def reader(world: World) -> Steps:
    """Reads from the beginning on, assigned; now and then assigned anew."""
    process, rng = world.process(), world.rng
    positions: dict[str, int] = {}
    for number in range(rng.randint(6, 16)):
        if number == 0 or rng.random() < 0.1:
            keys = rng.sample(KEYS, rng.randint(1, len(KEYS)))
            world.record(process, INVOKE, "assign", keys)
            yield
            positions = {key: positions.get(key, 0) for key in keys}
            world.record(process, OK, "assign", keys)
        world.record(process, INVOKE, "poll", [["poll"]])
        yield
        world.record(process, OK, "poll", [["poll", _poll(world, positions)]])
        if rng.random() < 0.05:
            process, positions = world.process(), dict.fromkeys(positions, 0)
            world.record(process, INVOKE, "assign", list(positions))
            world.record(process, OK, "assign", list(positions))
        yield


def _poll(world: World, positions: dict[str, int]) -> dict[str, list[list[int]]]:
    found = {}
    for key in list(positions):
        places, positions[key] = world.read(key, positions[key], world.rng.randint(1, 6))
        if places:
            found[key] = places
    return found


def transactor(world: World) -> Steps:
    """Reads and writes in transactions; some are aborted, some end as nobody knows."""
    process, rng = world.process(), world.rng
    positions = dict.fromkeys(KEYS, 0)
    world.record(process, INVOKE, "assign", list(KEYS))
    world.record(process, OK, "assign", list(KEYS))
    for _ in range(rng.randint(3, 8)):
        before = dict(positions)
        wanted: list[list[Any]] = [
            ["poll"] if rng.random() < 0.3 else ["send", rng.choice(KEYS), world.value()]
            for _ in range(rng.randint(1, 4))
        ]
        world.record(process, INVOKE, "txn", wanted)
        transaction = Transaction()
        done: list[list[Any]] = []
        for operation in wanted:
            yield
            if operation[0] == "poll":
                done.append(["poll", _poll(world, positions)])
            else:
                transaction.touched.add(operation[1])
                offset = world.append(operation[1], operation[2], transaction, None)
                done.append(["send", operation[1], [offset, operation[2]]])
        yield
        fate = rng.random()
        if fate < 0.2:
            world.end(transaction, "aborted")
            positions = before
            world.record(process, FAIL, "txn", done)
        else:
            world.now += 1
            commit_time = world.now
            yield
            world.end(transaction, "committed" if fate < 0.9 else rng.choice(("committed", "aborted")))
            yield
            world.record(process, OK if fate < 0.9 else INFO, "txn", done, commit_time=commit_time)
            if fate >= 0.9:
                process, positions = world.process(), dict.fromkeys(KEYS, 0)
        yield


def member(world: World) -> Steps:
    """A member of a group: reads what is its own, and commits."""
    process, rng = world.process(), world.rng
    world.record(process, INVOKE, "subscribe", list(KEYS))
    world.members[process] = set()
    world.rebalance()
    positions: dict[str, int] = {}
    generation = -1
    world.record(process, OK, "subscribe", list(KEYS))
    for _ in range(rng.randint(4, 12)):
        yield
        if rng.random() < 0.1:
            world.rebalance()
        world.record(process, INVOKE, "poll", [["poll"]])
        if generation != world.generation:
            generation = world.generation
            positions = {
                key: positions.get(key, world.committed.get(key, 0))
                if key not in world.rebalanced.get(process, ())
                else world.committed.get(key, 0)
                for key in sorted(world.members[process])
            }
        yield
        found = _poll(world, positions)
        changed = sorted(world.rebalanced.pop(process, ()))
        world.record(process, OK, "poll", [["poll", found]], **({"rebalances": changed} if changed else {}))
        wanted = [["commit", GROUP, key, positions[key]] for key in found]
        if wanted:
            world.record(process, INVOKE, "commit", wanted)
            yield
            held = generation == world.generation
            if held:
                world.committed.update({key: positions[key] for key in found})
            yield
            lost = rng.random() < 0.05
            world.record(process, INFO if lost else OK if held else FAIL, "commit", wanted)
            if lost:
                break
    del world.members[process]
    world.rebalance()


def healthy(seed: int, workload: str) -> list[Event]:
    """A history in which nothing is wrong."""
    return World(seed, workload).play()

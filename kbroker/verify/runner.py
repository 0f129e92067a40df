"""Runs a workload against a cluster, under a nemesis, and records its history in a folder.

    DIR/history.jsonl    all operations and faults
    DIR/test.json        what was asked for, and whether the last phase could read everything

Phases: topics are made; processes work while faults come and go; the processes end and all is healed; every partition
is read to its end, and what groups committed and which topics there are is asked for.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kbroker.verify.clients import PATIENT, ClientProblem, Library, Reader, make_library
from kbroker.verify.history import FAIL, HISTORY_FILE, INFO, INVOKE, NEMESIS, OK, SETTINGS_FILE, STALLED, Recorder
from kbroker.verify.nemesis import Nemesis, make_nemesis
from kbroker.verify.workers import (
    KeyedWorker,
    MemberWorker,
    ReadingWorker,
    SendingWorker,
    StableReadingWorker,
    SubscribedWorker,
    TransactionWorker,
    Trial,
    Worker,
    by_key,
)

SPARE_SECONDS = 60.0
"""How long workers may take to end."""
HEAL = "heal"
MOST_LISTINGS, LISTING_SECONDS = 20, 0.5
EXTRA_TOPICS_EVERY = 5.0
MOST_EXTRA_TOPICS = 20

WORKLOADS: Mapping[str, tuple[type[Worker], ...]] = {
    "append": (SendingWorker, ReadingWorker),
    "queue": (SendingWorker, ReadingWorker, SendingWorker, SubscribedWorker),
    "txn": (TransactionWorker, TransactionWorker, StableReadingWorker),
    "group": (SendingWorker, MemberWorker),
    "compact": (KeyedWorker, ReadingWorker),
}
"""The kinds of processes of each, dealt out in turns."""
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "3000",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for."""

    bootstrap: str
    workload: str = "append"
    seconds: float = 60.0
    seed: int = 0
    nemesis: str = "none"
    client: str = "confluent"
    processes: int = 8
    topics: int = 2
    partitions: int = 3
    replicas: int = 0
    """0: three, or as many as there are brokers."""
    fault_seconds: float = 5.0
    """On the average, each fault and each pause between two."""
    final_seconds: float = 60.0
    """When the last phase has read nothing new for so long, it gives up."""
    keep_topics: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the clients."""


class TrialFailed(Exception):
    """A test could not begin."""


def run_test(plan: Plan, folder: Path, say: Callable[[str], None], nemesis: Nemesis | None = None) -> None:
    """Run it; the folder has its history afterwards. Progress goes to `say`. `nemesis` goes over the plan's."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / HISTORY_FILE).exists():
        raise TrialFailed(f"{folder} has a history already; name another folder")
    nemesis = nemesis or make_nemesis(plan.nemesis, plan.seed)
    _write_settings(folder, plan, "the test was cut short")
    bootstrap = nemesis.start(plan.bootstrap)
    try:
        clients = make_library(plan.client, bootstrap, plan.settings)
        with (folder / HISTORY_FILE).open("w") as file:
            patient = make_library(plan.client, bootstrap, plan.settings, PATIENT)
            say(f"making {plan.topics} topics of {plan.partitions} partitions on {plan.bootstrap}")
            trial = _prepare(plan, clients, patient, Recorder(file))
            say(f"{plan.workload} on {', '.join(trial.topics)} for {plan.seconds:g} s, seed {plan.seed}")
            _work(plan, trial, nemesis, say)
            say("all is healed; reading every partition to its end")
            ended = FinalPhase(plan, trial).run()
        _write_settings(folder, plan, ended, trial)
        _tidy_up(plan, trial)
    finally:
        nemesis.stop()


def _write_settings(folder: Path, plan: Plan, final_phase: str, trial: Trial | None = None) -> None:
    # Passwords may be among the clients' settings.
    known = {name: value for name, value in asdict(plan).items() if name != "settings"}
    document = {**known, "isolation": "read_committed", "final_phase": final_phase}
    document |= {"last_problems": trial.problems if trial else [], "failure": trial.failure if trial else ""}
    (folder / SETTINGS_FILE).write_text(json.dumps(document, indent=2) + "\n")


def _prepare(plan: Plan, clients: Library, patient: Library, recorder: Recorder) -> Trial:
    """Make the topics: no fault has come yet, so nobody gives up soon."""
    name = f"verify-{plan.workload}-{plan.seed}-{int(time.time())}"
    topics = [f"{name}-{number}" for number in range(plan.topics)]
    keys = [f"{topic}:{number}" for topic in topics for number in range(plan.partitions)]
    trial = Trial(clients, recorder, name, keys, topics)
    try:
        replicas = plan.replicas or min(3, patient.brokers())
        config = {"retention.ms": "-1", **(COMPACTED if plan.workload == "compact" else {})}
        if replicas > 2:
            config["min.insync.replicas"] = "2"
        for topic in topics:
            patient.create_topic(topic, plan.partitions, replicas, config)
        _until_known(patient, topics)
    except ClientProblem as problem:
        raise TrialFailed(f"topics could not be made: {problem}") from problem
    return trial


def _until_known(clients: Library, topics: list[str]) -> None:
    deadline = time.monotonic() + SPARE_SECONDS
    while not set(topics) <= set(clients.topics()):
        if time.monotonic() > deadline:
            raise ClientProblem(f"{', '.join(topics)}: created, and not there after {SPARE_SECONDS:g} s")
        time.sleep(0.1)


def _work(plan: Plan, trial: Trial, nemesis: Nemesis, say: Callable[[str], None]) -> None:
    kinds = WORKLOADS[plan.workload]
    workers = [kinds[number % len(kinds)](trial, number, plan.seed) for number in range(plan.processes)]
    threads = [threading.Thread(target=worker.run, name=f"worker-{worker.number}") for worker in workers]
    threads.append(threading.Thread(target=_change_topics, args=(trial, plan.seed), name="admin"))
    for thread in threads:
        thread.start()
    try:
        _break_and_heal(plan, trial, nemesis, say)
    finally:
        trial.stop.set()
        for thread in threads:
            thread.join(SPARE_SECONDS)
    stuck = [thread.name for thread in threads if thread.is_alive()]
    if stuck:
        raise TrialFailed(f"{', '.join(stuck)} did not end within {SPARE_SECONDS:g} s")


def _break_and_heal(plan: Plan, trial: Trial, nemesis: Nemesis, say: Callable[[str], None]) -> None:
    """Faults and healings in turns, until the time is up; at the end all is healed."""
    rng = random.Random(f"{plan.seed}-nemesis")
    end = time.monotonic() + plan.seconds
    try:
        while (left := end - time.monotonic()) > 0:
            trial.stop.wait(min(left, rng.uniform(0.5, 1.5) * plan.fault_seconds))
            if trial.stop.is_set() or time.monotonic() >= end:
                break
            fault = nemesis.inject(rng)
            if fault is None:
                continue
            say(f"{trial.recorder.elapsed / 1e9:7.1f} s  {fault.name} {_words(fault.details)}")
            trial.recorder.record(NEMESIS, INFO, fault.name, [dict(fault.details)])
            trial.stop.wait(min(max(end - time.monotonic(), 0), rng.uniform(0.5, 1.5) * plan.fault_seconds))
            nemesis.heal()
            trial.recorder.record(NEMESIS, INFO, HEAL, [])
    finally:
        nemesis.heal()


def _words(details: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in details.items())


def _change_topics(trial: Trial, seed: int) -> None:
    """Create topics and delete some of them again; what is acknowledged must hold at the end."""
    try:
        _create_and_delete(trial, seed)
    except Exception as error:
        trial.fail("the admin", error)


def _create_and_delete(trial: Trial, seed: int) -> None:
    rng = random.Random(f"{seed}-admin")
    for number in range(MOST_EXTRA_TOPICS):
        if trial.stop.wait(rng.uniform(0.5, 1.5) * EXTRA_TOPICS_EVERY):
            return
        name, partitions = f"{trial.name}-extra-{number}", rng.randint(1, 3)
        made = _admin(trial, ["create-topic", name, partitions], _creation(trial, name, partitions))
        if made and rng.random() < 0.5:
            _admin(trial, ["delete-topic", name], _deletion(trial, name))


def _creation(trial: Trial, name: str, partitions: int) -> Callable[[], None]:
    return lambda: trial.clients.create_topic(name, partitions, 1, {})


def _deletion(trial: Trial, name: str) -> Callable[[], None]:
    return lambda: trial.clients.delete_topics([name])


def _admin(trial: Trial, operation: list[Any], call: Callable[[], None]) -> bool:
    process = trial.processes()
    trial.recorder.record(process, INVOKE, "admin", [operation])
    try:
        call()
    except ClientProblem as problem:
        trial.recorder.record(process, FAIL if problem.is_definite else INFO, "admin", [operation], error=str(problem))
        return False
    trial.recorder.record(process, OK, "admin", [operation])
    return True


class FinalPhase:
    """Reads everything, and asks for what must hold."""

    def __init__(self, plan: Plan, trial: Trial) -> None:
        self._plan = plan
        self._trial = trial
        self._process = trial.processes()
        self._best: dict[str, int] = {}
        self._moved_at = time.monotonic()

    def run(self) -> str:
        """Returns `complete`, or what could not be read."""
        ended = self._read_all()
        if ended == "complete" and self._plan.workload == "group":
            ended = self._retried(self._ask_committed)
        if ended == "complete":
            ended = self._retried(self._list_topics)
        return ended

    def _read_all(self) -> str:
        """Read from the beginning to the high watermarks; after an error again from the beginning."""
        self._moved_at = time.monotonic()
        problem = "nothing could be read"
        while time.monotonic() < self._moved_at + self._plan.final_seconds:
            reader: Reader | None = None
            try:
                reader = self._trial.clients.reader(self._trial.group if self._plan.workload == "group" else None)
                left = self._read(reader, reader.ends(self._trial.keys))
                if not left:
                    return "complete"
                behind = ", ".join(f"{key} was read up to {at[0]} of {at[1]}" for key, at in sorted(left.items()))
                problem = f"{STALLED}: {behind}"
            except ClientProblem as error:
                problem = str(error)
                time.sleep(1)
            finally:
                if reader is not None:
                    reader.crash()
            self._process = self._trial.processes()
        return problem

    def _read(self, reader: Reader, ends: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Read until all is read, or nothing more comes; returns what is left."""
        recorder, process = self._trial.recorder, self._process
        keys = list(self._trial.keys)
        recorder.record(process, INVOKE, "assign", keys, final=True)
        reader.assign(dict.fromkeys(keys))
        recorder.record(process, OK, "assign", keys, final=True, from_beginning=True)
        reached: Mapping[str, int] = {}
        while time.monotonic() < self._moved_at + self._plan.final_seconds:
            recorder.record(process, INVOKE, "poll", [["poll"]], final=True)
            found = reader.poll(0.2)
            recorder.record(process, OK, "poll", [["poll", by_key(found)]], final=True)
            reached = reader.reached()
            for key in keys:
                if reached.get(key, 0) > self._best.get(key, 0):
                    self._best[key] = reached[key]
                    self._moved_at = time.monotonic()
            if all(reached.get(key, 0) >= ends[key] for key in keys):
                return {}
        return {key: (reached.get(key, 0), ends[key]) for key in keys if reached.get(key, 0) < ends[key]}

    def _retried(self, call: Callable[[], None]) -> str:
        deadline = time.monotonic() + self._plan.final_seconds
        while True:
            try:
                call()
                return "complete"
            except ClientProblem as problem:
                if time.monotonic() > deadline:
                    return str(problem)
                time.sleep(1)

    def _ask_committed(self) -> None:
        recorder, process, trial = self._trial.recorder, self._trial.processes(), self._trial
        reader = trial.clients.reader(trial.group)
        try:
            asked = [["committed", trial.group, key] for key in trial.keys]
            recorder.record(process, INVOKE, "committed", asked, final=True)
            found = reader.committed(trial.keys)
            answers = [["committed", trial.group, key, offset] for key, offset in found.items()]
            recorder.record(process, OK, "committed", answers, final=True)
        finally:
            reader.crash()

    def _list_topics(self) -> None:
        process = self._trial.processes()
        self._trial.recorder.record(process, INVOKE, "admin", [["topics"]], final=True)
        topics = self._trial.clients.topics()
        for _ in range(MOST_LISTINGS):
            time.sleep(LISTING_SECONDS)
            before, topics = topics, self._trial.clients.topics()
            if topics == before:
                # What was deleted or created last has reached the broker that was asked.
                break
        found = {name: count for name, count in topics.items() if name.startswith(self._trial.name)}
        self._trial.recorder.record(process, OK, "admin", [["topics", found]], final=True)


def _tidy_up(plan: Plan, trial: Trial) -> None:
    if plan.keep_topics:
        return
    try:
        names = [name for name in trial.clients.topics() if name.startswith(trial.name)]
        trial.clients.delete_topics(names)
    except ClientProblem as problem:
        trial.note(problem)

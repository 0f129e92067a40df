"""Tests for kbroker.verify.workers: what a history says of what clients said."""

import contextlib
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from kbroker.verify.clients import ClientProblem, Incoming, Outcome, Outgoing, make_library
from kbroker.verify.history import FAIL, INFO, OK, Recorder
from kbroker.verify.own_client import OwnLibrary
from kbroker.verify.workers import TransactionWorker, Trial, Worker, by_key, told, type_of


class Surprised(Worker):
    """Its client fails as no client should."""

    def step(self) -> None:
        raise KeyError("offset")


def test_what_nobody_expects_of_a_worker_ends_the_test_and_is_told() -> None:
    trial = Trial(make_library("kbroker", "127.0.0.1:1", {}), Recorder(io.StringIO()), "test", ["t:0"], ["t"])
    Surprised(trial, 3, 1).run()
    Surprised(trial, 4, 1).run()
    assert trial.stop.is_set()
    assert trial.failure.startswith("Surprised 3 failed: KeyError: 'offset' (step, line ")


class Fenced:
    """A producer and a consumer, whose transaction somebody else has ended before it commits."""

    def send(self, records: Sequence[Outgoing]) -> list[Outcome]:
        return [Outcome(3) for _ in records]

    def commit(self) -> None:
        raise ClientProblem("fenced", is_definite=True)

    def poll(self, seconds: float) -> list[Incoming]:
        return []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: None


class FencedLibrary(OwnLibrary):
    def sender(self, transactional_id: str | None = None) -> Any:
        return Fenced()

    def reader(self, group: str | None = None) -> Any:
        return Fenced()


def test_of_a_commit_that_was_refused_nobody_knows_when_the_transaction_ended() -> None:
    file = io.StringIO()
    worker = TransactionWorker(Trial(FencedLibrary("127.0.0.1:1", {}), Recorder(file), "test", ["t:0"], ["t"]), 0, 1)
    while '"fenced"' not in file.getvalue():  # now and then one is aborted on purpose
        with contextlib.suppress(ClientProblem):
            worker.step()
    event = json.loads(file.getvalue().splitlines()[-1])
    assert (event["type"], event.get("commit_time")) == (FAIL, None)


def test_only_what_certainly_did_not_happen_has_failed() -> None:
    fine, refused, unknown = Outcome(3), Outcome(error="too large", is_definite=True), Outcome(error="timed out")
    assert type_of([fine, Outcome()]) == (OK, None)
    assert type_of([refused, refused]) == (FAIL, "too large")
    assert type_of([unknown]) == (INFO, "timed out")
    assert type_of([fine, refused]) == (INFO, "too large")
    assert type_of([refused, unknown]) == (INFO, "too large")


def test_a_send_has_its_offset_only_where_the_client_was_told() -> None:
    assert told(Outgoing("t:0", 5), Outcome(3)) == ["send", "t:0", [3, 5]]
    assert told(Outgoing("t:0", 5), Outcome()) == ["send", "t:0", 5]
    assert told(Outgoing("t:0", 5), Outcome(3, "no")) == ["send", "t:0", 5]
    assert told(Outgoing("t:0", 5, 9), Outcome(3)) == ["send", "t:0", [3, 5, "9"]]
    assert told(Outgoing("t:0", 5, 9), Outcome()) == ["send", "t:0", [None, 5, "9"]]


def test_what_was_read_is_told_as_it_came_even_what_is_no_value_of_ours() -> None:
    records = [
        Incoming("t:0", 1, b"5", None),
        Incoming("t:1", 0, b"7", b"9"),
        Incoming("t:0", 2, "\u0663".encode(), None),
        Incoming("t:0", 3, None, None),
    ]
    assert by_key(records) == {"t:0": [[1, 5], [2, "\u0663"], [3, ""]], "t:1": [[0, 7, "9"]]}

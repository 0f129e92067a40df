"""What the load's reader or a broker does wrong turns a fault test red: clients and brokers here are made up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults import load
from tests.faults.cluster_view import until
from tests.faults.load import Load
from tests.system.writers import Writer

Batch = list[tuple[int, bytes]]
"""Offsets and values, as they come from one poll."""
SOON_S = 0.3
"""So long what never comes is waited for here."""


class Store:
    """One partition of a broker, and what its readers get of it."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.shown: Callable[[Batch], Batch] = lambda batch: batch
        """What a reader is given of what lies there."""
        self.is_stuck = threading.Event()
        self.log = ""

    def consumer(self, *arguments: Any, **settings: Any) -> StoreConsumer:
        """Return a reader's client."""
        return StoreConsumer(self)

    def cluster(self) -> Any:
        """Return a cluster with this one partition."""
        return SimpleNamespace(
            bootstrap="",
            partitions=lambda topic: [0],
            leader=lambda topic, partition: None,
            until_whole=lambda topic: None,
            until_identical=lambda topic: None,
            brokers={1: SimpleNamespace(log_tail=lambda lines: self.log)},
        )


class StoreConsumer:
    """Reads a store from its beginning."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._position = 0

    def __enter__(self) -> StoreConsumer:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def assign(self, keys: object) -> None:
        """There is one."""

    def seek(self, key: object, offset: int) -> None:
        """Go there."""
        self._position = offset

    def poll(self, timeout: float) -> list[Any]:
        """Return what has come."""
        time.sleep(0.001)
        first, end = self._position, len(self._store.values)
        self._position = end
        found = self._store.shown([(offset, self._store.values[offset]) for offset in range(first, end)])
        return [SimpleNamespace(partition=0, offset=offset, value=value) for offset, value in found]


class StoreWriter(Writer):
    """Is told at once that what it sends is there."""

    name = "store"
    broker: Any

    def _write(self) -> None:
        while not self._stop.is_set():
            number, partition, value = self._next()
            STORES[self.topic].values.append(value)
            self.acknowledged[number] = partition, len(STORES[self.topic].values) - 1
            time.sleep(0.001)


STORES: dict[str, Store] = {}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, topic_name: str) -> Iterator[Store]:
    store = STORES[topic_name] = Store()
    monkeypatch.setattr(load, "Consumer", store.consumer)
    monkeypatch.setattr(load, "read_all", lambda leader, topic, partition: STORES[topic].values)
    yield store
    store.is_stuck.set()
    del STORES[topic_name]


def played(store: Store, topic: str, before_end: Callable[[Load], object] = lambda running: None) -> None:
    """Write and read for a moment, and look at what came of it."""
    with Load(store.cluster(), topic, (StoreWriter,)) as running:
        for _ in range(3):
            running.until_progress()
        before_end(running)
        running.finish_and_check()


def test_what_is_written_and_read_as_promised_is_no_reason_to_complain(store: Store, topic_name: str) -> None:
    played(store, topic_name)
    assert len(store.values) >= 3


def raising(batch: Batch) -> Batch:
    if batch:
        raise RuntimeError("it cannot read")
    return batch


def without_the_second(batch: Batch) -> Batch:
    return [each for each in batch if each[0] != 1]


def twice_the_second(batch: Batch) -> Batch:
    return [each for each in batch for _ in range(1 + (each[0] == 1))]


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (raising, "it cannot read"),
        (without_the_second, "0: 2 after 1"),
        (twice_the_second, "0: 1 after 2"),
    ],
)
def test_a_reader_who_is_not_given_one_record_after_the_other_is_told(
    store: Store, topic_name: str, monkeypatch: pytest.MonkeyPatch, shown: Callable[[Batch], Batch], said: str
) -> None:
    store.shown = shown

    def until_it_has_read(running: Load) -> None:
        until(lambda: running.reader.errors, "it has read")
        monkeypatch.setattr(load, "TIMEOUT", SOON_S)

    with pytest.raises(AssertionError, match=said):
        played(store, topic_name, until_it_has_read)


def test_a_reader_who_saw_what_is_not_there_is_told(store: Store, topic_name: str) -> None:
    store.shown = lambda batch: [(offset, b"another" if offset == 1 else value) for offset, value in batch]
    with pytest.raises(AssertionError, match="a reader saw b'another', and it is gone"):
        played(store, topic_name)


def stuck(store: Store, batch: Batch) -> Batch:
    store.is_stuck.wait()
    return batch


@pytest.mark.parametrize(
    ("shown", "said"),
    [(lambda store, batch: [], "acknowledged records were never seen"), (stuck, "the reader does not end")],
    ids=["reads nothing", "hangs"],
)
def test_a_reader_who_does_nothing_is_told(
    store: Store, topic_name: str, monkeypatch: pytest.MonkeyPatch, shown: Callable[[Store, Batch], Batch], said: str
) -> None:
    store.shown = partial(shown, store)
    with pytest.raises(AssertionError, match=said):
        played(store, topic_name, lambda running: monkeypatch.setattr(load, "TIMEOUT", SOON_S))


def test_a_broker_that_loses_what_it_acknowledged_is_told(store: Store, topic_name: str) -> None:
    def lose_the_last(running: Load) -> None:
        (writer,) = running.writers
        writer.finish(60)
        running.reader.finish(writer.acknowledged.values())
        running.reader.seen.clear()
        running.reader.finish = lambda acknowledged: None  # type: ignore[method-assign]  # only the store tells
        store.values.pop()

    with pytest.raises(AssertionError, match=r"acknowledged at .*, and missing"):
        played(store, topic_name, lose_the_last)


def test_a_broker_that_tells_of_a_mistake_of_its_own_is_told(store: Store, topic_name: str) -> None:
    store.log = "Traceback (most recent call last):"
    with pytest.raises(AssertionError, match="Traceback"):
        played(store, topic_name)

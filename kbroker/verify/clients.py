"""What workloads need of a client library, and a choice by name: `confluent` (not ours) or `kbroker`.

A key is a partition as TOPIC:NUMBER. All calls block, within limits of their own; what goes wrong is a `ClientProblem`
that says whether it is certain that nothing happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """How long clients wait, in seconds."""

    request: float = 5.0
    delivery: float = 10.0
    """After so long nobody waits for an acknowledgement any more."""
    transaction: float = 10.0
    """A transaction that its producer left is aborted by the cluster after so long."""


UNDER_FAULTS = Limits()
"""Short: what a fault holds up shall be over before the next one, and its client make room for another."""
PATIENT = Limits(60.0, 60.0, 60.0)
"""Where nothing is broken on purpose, a machine without time for us is no reason to fail."""


class ClientProblem(Exception):
    """A call failed."""

    def __init__(self, text: str, *, is_definite: bool = False, ends_process: bool = True) -> None:
        super().__init__(text)
        self.is_definite = is_definite
        """Whether it is certain that nothing happened."""
        self.ends_process = ends_process
        """Whether the client cannot be used any further."""


class LibraryMissing(Exception):
    """A client library is not installed."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be sent."""

    key: str
    value: int
    record_key: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a record: an offset (None: not told), or an error."""

    offset: int | None = None
    error: str | None = None
    is_definite: bool = False
    """Of an error: whether the record is certainly not written."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A record that was read."""

    key: str
    offset: int
    value: bytes | None
    record_key: bytes | None


class Sender(Protocol):
    """A producer."""

    def send(self, records: Sequence[Outgoing]) -> list[Outcome]:
        """Send records in their order, and wait for what becomes of each."""

    def begin(self) -> None:
        """Begin a transaction."""

    def commit(self) -> None:
        """Commit it."""

    def abort(self) -> None:
        """Abort it."""

    def crash(self) -> None:
        """Vanish without a word."""


class Reader(Protocol):
    """A consumer."""

    def assign(self, positions: Mapping[str, int | None]) -> None:
        """Read these keys, each from an offset, or from its beginning."""

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read what the group gives out."""

    def poll(self, seconds: float) -> list[Incoming]:
        """Records, in the order of each key; an empty list after a while."""

    def rebalances(self) -> list[str]:
        """Keys that were given or taken since the last call."""

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Commit offsets, and wait for the answer."""

    def committed(self, keys: Sequence[str]) -> dict[str, int]:
        """The group's committed offsets; -1 where there is none."""

    def ends(self, keys: Sequence[str]) -> dict[str, int]:
        """The high watermark of each key."""

    def stable_ends(self, keys: Sequence[str]) -> dict[str, int]:
        """Where each key ends for readers of committed records."""

    def reached(self) -> Mapping[str, int]:
        """Up to which offset each key has been read, markers included, as far as it is known."""

    def crash(self) -> None:
        """Vanish without a word."""


class Library(Protocol):
    """A client library, with the addresses and settings of a cluster."""

    def sender(self, transactional_id: str | None = None) -> Sender:
        """A new producer, with acks=all and idempotence."""

    def reader(self, group: str | None = None) -> Reader:
        """A new consumer of committed records from the beginning on."""

    def create_topic(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        """Create a topic, and wait until the controller has said so."""

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics."""

    def topics(self) -> dict[str, int]:
        """All topics and their number of partitions."""

    def brokers(self) -> int:
        """How many brokers there are."""


def split_key(key: str) -> tuple[str, int]:
    """Topic and number of a key."""
    topic, _, number = key.rpartition(":")
    return topic, int(number)


def make_library(name: str, bootstrap: str, settings: Mapping[str, str], limits: Limits = UNDER_FAULTS) -> Library:
    """Load a client library; LibraryMissing says how to get it."""
    if name == "kbroker":
        from kbroker.verify.own_client import OwnLibrary

        return OwnLibrary(bootstrap, settings, limits)
    try:
        from kbroker.verify.confluent_client import ConfluentLibrary
    except ImportError as error:
        raise LibraryMissing("confluent-kafka is not installed: pip install 'kbroker[verify]'") from error
    return ConfluentLibrary(bootstrap, settings, limits)

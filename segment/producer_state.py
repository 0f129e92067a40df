"""What a log knows of each idempotent producer: epoch, last five batches, open transaction; and its snapshots.

`<offset>.snapshot` is the state as of that offset (exclusive), big-endian:

    version int16 = 1 | crc uint32 (CRC-32C of all that follows) | count int32 | count x 46 bytes:
    producer id int64 | producer epoch int16 | last sequence int32 | last offset int64 | offset delta int32
    | timestamp int64 | coordinator epoch int32 | first offset of the current transaction int64 (-1 none)

Pure but for reading and writing snapshots, which takes and gives bytes. The rules are KIP-98's and KIP-890's,
Kafka's `ProducerAppendInfo` has them, too.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import BatchHeader, increment_sequence
from kbroker.protocol.records.checksum import crc32c
from kbroker.protocol.records.control import ControlType, read_marker
from kbroker.protocol.records.reader import BytesLike
from kbroker.segment.transaction_index import AbortedTransaction
from kbroker.segment.undecided import UndecidedTransactions

log = logging.getLogger(__name__)

_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CACHED_BATCHES = 5
_VERSION = 1


class CachedBatch(NamedTuple):
    """A batch that may be sent again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """Last offset minus first offset."""
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record."""
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 or self.last_sequence < 0 else first + (1 << 31)

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta

    @property
    def place(self) -> tuple[int, int, int]:
        """First and last offset, and the timestamp, with CreateTime too: what who sends it again is told."""
        return self.first_offset, self.last_offset, self.timestamp


class ProducerEntry:
    """One producer id as this partition knows it."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "generation",
        "is_from_snapshot",
        "last_timestamp",
        "next_sequence",
        "packed",
        "producer_id",
        "quiet_since",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, generation: int = 0) -> None:
        self.producer_id = producer_id
        self.generation = generation
        """Of the ProducerState: it is not changed any more when that has a later one, for a snapshot may hold it."""
        self.epoch = -1
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_first_offset = -1
        """-1 while no transaction is open."""
        self.next_sequence = 0
        """What the next batch of this epoch has to begin with; 0 when none is known."""
        self.batches: list[CachedBatch] = []
        """Oldest first; at most five."""
        self.is_from_snapshot = False
        """Whether the log may hold more of the last five: a snapshot keeps the last one only."""
        self.quiet_since = -1
        """When it was first noticed that nothing more came (ms of a steady clock); -1: something came since."""
        self.packed = b""
        """As snapshots have it, once one holds it; then it is not changed any more."""

    def copy(self, generation: int) -> ProducerEntry:
        """The same, to be changed."""
        copied = ProducerEntry(self.producer_id, generation)
        for name in self.__slots__:
            if name not in ("generation", "batches", "packed"):
                setattr(copied, name, getattr(self, name))
        copied.batches = self.batches.copy()
        return copied

    def pack(self) -> bytes:
        """Return what snapshots have of it, from now on the same."""
        last = self.batches[-1] if self.batches else CachedBatch(-1, -1, 0, -1)
        self.packed = _ENTRY.pack(
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp,
            self.coordinator_epoch,
            self.transaction_first_offset,
        )
        return self.packed

    def begin_epoch(self, epoch: int) -> None:
        """Forget the batches of another epoch."""
        self.epoch = epoch
        self.batches.clear()
        self.is_from_snapshot = False
        self.next_sequence = 0

    def duplicate_of(self, header: BatchHeader) -> CachedBatch | None:
        """The cached batch that this one repeats."""
        if header.producer_epoch != self.epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def recall(self, earlier: Sequence[CachedBatch]) -> None:
        """Put batches before those that are known; as many as there is room for."""
        room = _CACHED_BATCHES - len(self.batches)
        if room:
            self.batches[:0] = earlier[-room:]


class Verification:
    """That a producer's transaction has this partition is being verified (KIP-890): made before its coordinator is
    asked, gone with the batch that opens the transaction, or with the marker that ends it before. So an append that
    brings the one that is known now was verified for the transaction that is open now, and for no other.
    """

    __slots__ = ("adds", "epoch", "lowest_sequence", "quiet_since")

    def __init__(self, sequence: int, epoch: int, adds: bool = False) -> None:
        self.lowest_sequence = sequence
        """Of the batches that were to be verified: a later one may not be appended before it."""
        self.epoch = epoch
        self.adds = adds
        """Whether the coordinator adds the partition by it: then each transaction has an epoch of its own, and the
        marker that has this one ends the transaction before.
        """
        self.quiet_since = -1
        """As a ProducerEntry's."""

    def wanted_for(self, sequence: int, epoch: int, adds: bool) -> None:
        """Another batch waits for it."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch, self.lowest_sequence, self.adds = epoch, sequence, adds

    def outlives(self, header: BatchHeader) -> bool:
        """Whether it still holds when a transactional batch of its producer has been appended."""
        return self.adds and header.is_control and header.producer_epoch == self.epoch


NOT_ASKED_FOR = Verification(0, -1)
"""Brought by an append that need not be verified."""

OF_A_RAISED_EPOCH = Verification(0, -1)
"""Brought by the marker of a transaction that had an epoch of its own, the one before the marker's (KIP-1228)."""


class Marker(NamedTuple):
    """What the control batch that ends a transaction says."""

    control_type: ControlType
    coordinator_epoch: int


def marker_of(header: BatchHeader, buffer: BytesLike, position: int = 0) -> Marker | None:
    """What the batch at `position` says if it ends a transaction.

    None for data, for other control batches, and for a marker that compaction has emptied: nothing but its producer's
    epoch is left then, and all of its transaction is gone. Raises InvalidRecord.
    """
    if not header.is_control or not header.count:
        return None
    control_type, coordinator_epoch = read_marker(buffer, position, header.size)
    return None if control_type is ControlType.UNKNOWN else Marker(control_type, coordinator_epoch)


class ProducerState:
    """All producers of one log. Methods that change it belong to the log's appender (under the log's lock)."""

    __slots__ = ("_generation", "last_snapshot_offset", "producers", "transactions", "verifications")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.transactions = UndecidedTransactions()
        self.verifications: dict[int, Verification] = {}
        """By producer id; those of transactions that have no batch here yet."""
        self.last_snapshot_offset = -1
        """Offset of the newest snapshot, -1 when there is none."""
        self._generation = 0
        """How often the state was captured."""

    # ------------------------------------------------------------------ appending

    def verify(self, producer_id: int, sequence: int, epoch: int, adds: bool = False) -> Verification | None:
        """What an append has to bring once the coordinator has confirmed it; None: its transaction is open here.

        `adds`: the coordinator is asked to add the partition. Raises KafkaError INVALID_PRODUCER_EPOCH.
        """
        entry = self.producers.get(producer_id)
        if entry is not None and entry.epoch > epoch:
            raise _too_old(producer_id, epoch, entry.epoch)
        if entry is not None and entry.transaction_first_offset >= 0 and entry.epoch == epoch:
            return None
        verification = self.verifications.get(producer_id)
        if verification is None:
            verification = self.verifications[producer_id] = Verification(sequence, epoch, adds)
        verification.wanted_for(sequence, epoch, adds)
        return verification

    def check(
        self, header: BatchHeader, from_client: bool, verified: Verification | None = NOT_ASKED_FOR
    ) -> CachedBatch | None:
        """Refuse a batch that breaks its producer's order, or return the batch that it repeats.

        `verified`: what `verify` gave for it, or OF_A_RAISED_EPOCH. Changes nothing. Raises KafkaError
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:  # any sequence of a producer that is unknown here
            if header.is_transactional:
                self._check_verified(header, verified)
                if from_client:
                    self._check_earliest(header)
                    self._check_first(header)
            return None
        is_next = (
            header.base_sequence == entry.next_sequence
            and header.producer_epoch == entry.epoch
            and not header.is_control
        )
        if is_next and header.is_transactional == (entry.transaction_first_offset >= 0):
            return None  # the common case: the next batch, in the transaction that is open, or outside of any
        if from_client and not is_next:
            duplicate = entry.duplicate_of(header)
            if duplicate is not None:
                return duplicate
        if header.is_transactional and (entry.transaction_first_offset < 0 or header.producer_epoch > entry.epoch):
            self._check_verified(header, verified)
        if header.producer_epoch < entry.epoch:
            raise _too_old(header.producer_id, header.producer_epoch, entry.epoch)
        if header.is_control:
            self._check_ends(entry, header, verified)
            return None
        if from_client:
            self._check_earliest(header)
            self._check_sequence(entry, header)
        if entry.transaction_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open here and sent a batch outside of it",
            )
        return None

    def _check_verified(self, header: BatchHeader, verified: Verification | None) -> None:
        """The batch begins a transaction here."""
        if header.is_control or verified is NOT_ASKED_FOR:
            return
        if verified is None or verified is not self.verifications.get(header.producer_id):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {header.producer_id} that this batch is part of is over",
            )

    def _check_ends(self, entry: ProducerEntry, header: BatchHeader, verified: Verification | None) -> None:
        """A marker that was sent twice and comes late must not end the transaction after its own.

        Where no transaction is open it may come again: its coordinator may not know that it was here already.
        """
        if (
            verified is OF_A_RAISED_EPOCH
            and entry.transaction_first_offset >= 0
            and header.producer_epoch == entry.epoch
        ):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"the transaction of producer {header.producer_id} that is open has epoch {entry.epoch}: the marker"
                " of that epoch belongs to the one before it",
            )

    def _check_earliest(self, header: BatchHeader) -> None:
        """A batch that failed on its way to be verified comes again, and before those behind it."""
        verification = self.verifications.get(header.producer_id)
        if verification is not None and header.base_sequence > verification.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {header.base_sequence} of producer {header.producer_id} is not the next:"
                f" {verification.lowest_sequence} was tried before",
            )

    def _check_first(self, header: BatchHeader) -> None:
        """Nothing is known of the producer, and its sequences begin anew with each transaction."""
        verification = self.verifications.get(header.producer_id)
        if verification is not None and verification.adds and header.base_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {header.base_sequence} of producer {header.producer_id} (epoch {header.producer_epoch})"
                " instead of 0: nothing of this transaction is known here",
            )

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader) -> None:
        # A new epoch begins with 0; so does one of which only a marker is known.
        expected = entry.next_sequence if header.producer_epoch == entry.epoch else 0
        if entry.epoch != -1 and header.base_sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {header.base_sequence} of producer {header.producer_id} (epoch {header.producer_epoch})"
                f" instead of {expected}",
            )

    def append(
        self, header: BatchHeader, base_offset: int, max_timestamp: int, marker: Marker | None
    ) -> AbortedTransaction | None:
        """Note a batch that was appended, or that lies in the log already; `marker`: what marker_of says of it.

        Returns the entry for the transaction index if it aborts a transaction that had data.
        """
        entry = self.changeable(header.producer_id)
        if entry.epoch != header.producer_epoch:
            entry.begin_epoch(header.producer_epoch)
        entry.quiet_since = -1
        if self.verifications and header.is_transactional:
            verification = self.verifications.get(header.producer_id)
            if verification is not None and not verification.outlives(header):
                del self.verifications[header.producer_id]
        if not header.is_control:
            self._note_data(entry, header, base_offset, max_timestamp)
            return None
        if marker is None:
            return None
        return self._note_marker(entry, marker, base_offset + header.last_offset_delta, max_timestamp)

    def changeable(self, producer_id: int) -> ProducerEntry:
        """A producer's entry, made when it is missing, that no snapshot holds."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_id, self._generation)
        elif entry.generation != self._generation:
            entry = self.producers[producer_id] = entry.copy(self._generation)
        return entry

    def capture(self) -> list[ProducerEntry]:
        """All producers as they are now, for good: what comes is noted in copies. Quick, however many there are."""
        self._generation += 1
        return list(self.producers.values())

    def _note_data(self, entry: ProducerEntry, header: BatchHeader, base_offset: int, max_timestamp: int) -> None:
        delta = header.last_offset_delta
        batches = entry.batches
        if len(batches) == _CACHED_BATCHES:
            del batches[0]
        last_sequence = header.last_sequence
        batches.append(CachedBatch(last_sequence, base_offset + delta, delta, max_timestamp))
        entry.next_sequence = increment_sequence(last_sequence, 1)
        entry.last_timestamp = max_timestamp
        if header.is_transactional and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = base_offset
            self.transactions.begin(header.producer_id, base_offset)

    def _note_marker(
        self, entry: ProducerEntry, marker: Marker, offset: int, timestamp: int
    ) -> AbortedTransaction | None:
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, -1
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        if first_offset < 0:
            return None  # it had no data here
        stable = self.transactions.end(first_offset, offset)
        if marker.control_type is not ControlType.ABORT:
            return None
        return AbortedTransaction(entry.producer_id, first_offset, offset, stable)

    def check_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Refuse the marker of a coordinator that was replaced. Raises TRANSACTION_COORDINATOR_FENCED."""
        entry = self.producers.get(header.producer_id)
        if entry is not None and entry.coordinator_epoch > coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} is older than {entry.coordinator_epoch},"
                f" seen with producer {header.producer_id}",
            )

    def remove_expired(self, steady_ms: int, expiration_ms: int) -> None:
        """Forget producers of which nothing came for so long, unless a transaction of theirs is open.

        To be called now and then with the time of a clock that nobody sets. Records' times and the clock on the wall
        do not count, as they do in Kafka: a producer of old data, or of any where the clock is set forward, would be
        forgotten while it tries again, and its records be stored twice.
        """
        expired = []
        for entry in self.producers.values():
            if entry.quiet_since < 0:
                entry.quiet_since = steady_ms
            elif steady_ms - entry.quiet_since >= expiration_ms and entry.transaction_first_offset < 0:
                expired.append(entry.producer_id)
        for producer_id in expired:
            del self.producers[producer_id]
        for producer_id, verification in list(self.verifications.items()):
            if verification.quiet_since < 0:
                verification.quiet_since = steady_ms
            elif steady_ms - verification.quiet_since >= expiration_ms:
                del self.verifications[producer_id]

    # ------------------------------------------------------------------ restart

    def load(self, entries: Iterable[ProducerEntry], offset: int, now_ms: int, expiration_ms: int) -> None:
        """Start from a snapshot taken at offset, without those that had expired when its last records came."""
        self.clear()
        self.last_snapshot_offset = offset
        self._generation += 1
        found = list(entries)
        newest = min(now_ms, max((entry.last_timestamp for entry in found), default=now_ms))
        for entry in found:
            if entry.transaction_first_offset >= 0 or newest - entry.last_timestamp < expiration_ms:
                self.producers[entry.producer_id] = entry
        for entry in sorted(self.producers.values(), key=lambda entry: entry.transaction_first_offset):
            if entry.transaction_first_offset >= 0:
                self.transactions.begin(entry.producer_id, entry.transaction_first_offset)

    def clear(self) -> None:
        """Forget everything but the snapshots' offsets."""
        self.producers.clear()
        self.transactions.clear()


def _too_old(producer_id: int, epoch: int, known: int) -> KafkaError:
    text = f"epoch {epoch} of producer {producer_id} is older than {known}"
    return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, text)


def snapshot_bytes(captured: Iterable[ProducerEntry]) -> bytes:
    """Content of a snapshot file. Of 100,000 producers few changed since the last one: only these are packed."""
    entries = [entry.packed or entry.pack() for entry in captured]
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    return struct.pack(">hI", _VERSION, crc32c(body)) + body


def read_snapshot(data: bytes) -> list[ProducerEntry]:
    """Read a snapshot file's content. Raises ValueError saying what is wrong with it."""
    if len(data) < _HEAD.size:
        raise ValueError(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"unknown version {version} (known: {_VERSION})")
    if crc32c(data[6:]) != crc:
        raise ValueError("its checksum does not match")
    if count * _ENTRY.size != len(data) - _HEAD.size:
        raise ValueError(f"{count} entries are promised in {len(data)} bytes")
    return [_read_entry(data, _HEAD.size + number * _ENTRY.size) for number in range(count)]


def _read_entry(data: bytes, position: int) -> ProducerEntry:
    fields = _ENTRY.unpack_from(data, position)
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = fields
    entry = ProducerEntry(producer_id)
    entry.epoch = epoch
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = timestamp
    entry.transaction_first_offset = first_offset
    if last_offset >= 0:
        entry.batches.append(CachedBatch(last_sequence, last_offset, delta, timestamp))
        entry.is_from_snapshot = True
        entry.next_sequence = increment_sequence(last_sequence, 1)
    return entry

"""Folders of logs with random lives, and what a log shows to those who ask it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kbroker.protocol.records.batch import BatchHeader, read_header, split_batches
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.file_records import FileRecords
from kbroker.segment.log import AppendOrigin, Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_manager import LogManager, LogManagerSettings
from tests.segment.batches import NOW, TOPIC_ID, batch
from tests.segment.compaction import clean

STEPS = 100
BATCH_RECORDS = 4
"""At most."""
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=200, retention_ms=-1, file_delete_delay_ms=0)
COMPACTED = replace(CONFIG, cleanup_policy=("compact",))
ABORT_KEY = b"\0\0\0\0"
_PIECE = 700
"""So many bytes a reader takes at once: transactions lie across its reads."""

Row = tuple[int, bytes | None, bytes | None, int, bool, int]


class View(NamedTuple):
    """What a log shows."""

    start: int
    end: int
    rows: list[Row]
    """(offset, key, value, timestamp, is of a control batch, producer id)"""
    last_stable_offset: int
    aborted: set[int]
    """Offsets of the records that readers of committed ones leave out."""
    times: dict[int, int | None]
    """Timestamp -> the first offset at or after it."""
    producers: dict[int, tuple[int, int, int]]
    """Producer id -> its epoch, last sequence and last offset."""
    epochs: tuple[tuple[int, int], ...]


def manager(path: Path, config: LogConfig) -> LogManager:
    """The log directory, opened and loaded."""
    logs = LogManager([path], config, LogManagerSettings(), clock=lambda: NOW)
    logs.open(1, "cluster")
    logs.load()
    return logs


class Life:
    """A log's random life, up to its stop."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.rng = rng
        self.config = rng.choice([CONFIG, CONFIG, COMPACTED])
        self.logs = manager(path, self.config)
        self.logs.background.close()  # what it would do at any moment is done by `flush_rolled`
        self.log = self.logs.create("orders", 0, TOPIC_ID, self.config)
        self.epoch, self.now_ms = 0, NOW
        self.has_forgotten = False
        """Whether the log began within a segment when its state was made anew: then it may have forgotten who wrote
        nothing above its start, and where their transactions began, as Kafka does, or know it again."""

    def run(self) -> None:
        """Append, and now and then what else befalls a log."""
        rare = [self.flush, self.flush_rolled, self.replicate, self.roll_on]
        rare += [self.delete_records, self.truncate, self.compact]
        for _ in range(STEPS):
            if self.rng.random() < 0.06:
                self.epoch += self.rng.randrange(1, 3)
            self.now_ms += self.rng.randrange(-3, 20)
            self.append()
            if self.rng.random() < 0.12:
                self.rng.choice(rare)()
        if self.rng.random() < 0.2:
            self.delete_records()
        if self.rng.random() < 0.3:  # a leader that was elected a moment ago
            self.log.assign_leader_epoch(self.epoch + 1)

    def stop(self, clean_stop: bool) -> View:
        """Stop; what was there. A crash leaves what was written, and the checkpoints of a moment before it."""
        self.log.update_high_watermark(self.log.log_end_offset)
        self.note_start()
        seen = see(self.log)
        self.log.write_pending()
        if clean_stop:
            self.logs.shutdown()
        else:
            self.logs.checkpoints.write_all()
            self.logs.abandon()
        return seen

    def append(self) -> None:
        """A batch of somebody."""
        rng, state = self.rng, self.log.producers.state
        producer_id, key = rng.choice([-1, -1, 5, 7, 8, 9]), b"%d" % rng.randrange(40)
        count, size = rng.randrange(BATCH_RECORDS) + 1, rng.randrange(5, 120)
        if producer_id < 0:
            self.put(batch(count, size, self.now_ms, key))
        elif producer_id in state.transactions.open.values() and rng.random() < 0.4:
            kind = rng.choice([ControlType.ABORT, ControlType.ABORT, ControlType.COMMIT])
            self.put(control_batch(kind, producer_id, 0, 0, self.now_ms), AppendOrigin.COORDINATOR)
        else:
            entry = state.producers.get(producer_id)
            sequence = entry.batches[-1].last_sequence + 1 if entry is not None and entry.batches else 0
            self.put(
                batch(
                    count,
                    size,
                    self.now_ms,
                    key,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=sequence,
                    transactional=producer_id > 5,
                )
            )

    def put(self, data: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        self.log.append_as_leader(data, self.epoch, NOW, origin)

    # --- what is rare ---

    def flush(self) -> None:
        self.log.flush()

    def flush_rolled(self) -> None:
        self.log.flush_rolled()

    def replicate(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        self.logs.checkpoints.write_all()

    def roll_on(self) -> None:
        self.logs.run_due(10**9)

    def delete_records(self) -> None:
        """Up to somewhere, often the end, and the segments below it go, or stay for now."""
        if self.config.is_deleted:
            self.replicate()
            end = self.log.log_end_offset
            self.log.delete_records(self.rng.choice([end, self.rng.randrange(self.log.log_start_offset, end + 1)]))
            self.logs.checkpoints.write_all()
            if self.rng.random() < 0.5:
                self.log.retention(NOW)

    def truncate(self) -> None:
        """As a new leader wants it, which leads in another epoch."""
        self.note_start()
        ends = [header.next_offset for _, _, batches in pieces(self.log) for _, _, header in batches]
        self.log.truncate_to(self.rng.choice([self.log.log_start_offset, *ends][-12:]))
        self.epoch += 1

    def note_start(self) -> None:
        bases = [segment.base_offset for segment in self.log.segments]
        self.has_forgotten |= self.log.log_start_offset not in bases

    def compact(self) -> None:
        if self.config.is_compacted:
            self.replicate()
            clean(self.log, NOW)


def see(log: Log) -> View:
    """All of it."""
    rows = list(read_rows(log))
    producers = {}
    for number, entry in log.producers.state.producers.items():
        last = entry.batches[-1] if entry.batches else None
        producers[number] = (entry.epoch, last.last_sequence if last else -1, last.last_offset if last else -1)
    times = {}
    for timestamp in sorted({row[3] for row in rows})[::7]:
        found = log.offset_for_timestamp(timestamp)
        times[timestamp] = found.offset if found is not None else None
    epochs = tuple(entry for entry in log.leader_epochs.entries if entry[1] < log.log_end_offset or entry[1] == 0)
    start, end = log.log_start_offset, log.log_end_offset
    return View(start, end, rows, log.last_stable_offset, aborted_offsets(log), times, producers, epochs)


def pieces(log: Log) -> Iterator[tuple[FileRecords, bytes, list[tuple[int, int, BatchHeader]]]]:
    """What a reader is given from the start to the end, and (place, size, header) of its whole batches."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.read(offset, _PIECE)
        data = records.read()
        batches = [(place, size, read_header(data, place)) for place, size in split_batches(data)]
        if not batches:  # the last ones of a compacted log may be gone
            return
        yield records, data, batches
        offset = batches[-1][2].next_offset


def read_rows(log: Log) -> Iterator[Row]:
    """Every record."""
    for _, data, batches in pieces(log):
        for place, size, header in batches:
            for each in decode_batch(data, place, size):
                if each.offset >= log.log_start_offset:
                    yield each.offset, each.key, each.value, each.timestamp, header.is_control, header.producer_id


def aborted_offsets(log: Log) -> set[int]:
    """What consumers of committed records leave out, as they do it."""
    found: set[int] = set()
    for records, data, batches in pieces(log):
        begun = sorted((each.first_offset, each.producer_id) for each in log.aborted_transactions(records))
        aborting: set[int] = set()
        for place, size, header in batches:
            while begun and begun[0][0] <= header.last_offset:
                aborting.add(begun.pop(0)[1])
            if header.is_control:
                if decode_batch(data, place, size)[0].key == ABORT_KEY:
                    aborting.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in aborting:
                found.update(range(header.base_offset, header.next_offset))
    return found

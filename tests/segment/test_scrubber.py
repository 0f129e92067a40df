"""Closed segments are read again: what is damaged is found and told, what is being changed is not mistaken for it."""

import errno
import logging
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import split_batches, stamp
from kbroker.segment.disk_reader import DiskReader
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_disk import LogDisk
from kbroker.segment.scrubber import BatchWalk, Damage, LogScrubber, LogScrubberSettings, Look
from tests.segment.batches import batch, old_messages, put_segment
from tests.segment.compaction import clean, put, roll
from tests.segment.test_cleaner import managed, until
from tests.segment.test_threads import are_nicer

PLAIN = LogConfig()
BATCHES = 20


def filled(log: Log, batches: int = BATCHES) -> None:
    """Add a closed segment."""
    for number in range(batches):
        put(log, ("key", f"{number:0100d}"))
    roll(log)


def segment_file(log: Log, number: int = 0) -> Path:
    return log.directory / log.segments[number].file.name


def flip(file: Path, position: int) -> None:
    """Flip a bit as a disk does it: the file's time says nothing."""
    before = file.stat()
    with file.open("r+b", buffering=0) as changed:
        byte = os.pread(changed.fileno(), 1, position)[0]
        os.pwrite(changed.fileno(), bytes([byte ^ 0x10]), position)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def place_of(file: Path, number: int) -> int:
    """Position of a batch."""
    return split_batches(file.read_bytes())[number][0]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A log of two closed segments."""
    manager = managed(tmp_path, "orders", config=PLAIN)
    log = manager.logs["orders", 0]
    filled(log)
    assert len(log.segments) == 3
    return log


def scrub(log: Log, told: list[Damage] | None = None) -> tuple[LogScrubber, list[Damage]]:
    manager: Any = SimpleNamespace(logs={("orders", 0): log})
    scrubber = LogScrubber(manager, LogScrubberSettings(), (told if told is not None else []).append)
    return scrubber, scrubber.scrub_all()


def test_a_healthy_log_is_read_whole_but_for_its_active_segment(log: Log) -> None:
    put(log, ("key", "value"))
    scrubber, found = scrub(log)
    assert not found
    assert scrubber.bytes_read == sum(segment.size for segment in log.segments[:-1])
    assert (scrubber.rounds, scrubber.damages) == (1, 0)


@pytest.mark.parametrize(
    ("inside", "why"),
    [(0, "offset"), (17, "checksum"), (70, "checksum"), (11, "batch")],
    ids=["base offset", "crc", "records", "length"],
)
def test_a_flipped_bit_is_found_with_its_place_and_the_offsets_it_concerns(
    log: Log, inside: int, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = segment_file(log, 1)
    position = place_of(file, 7)
    flip(file, position + inside)
    told: list[Damage] = []
    with caplog.at_level(logging.ERROR):
        scrubber, found = scrub(log, told)
    assert found == told
    (damage,) = found
    base = log.segments[1].base_offset
    assert (damage.segment, damage.position, damage.offset) == (log.segments[1], position, base + 7)
    assert damage.end_offset == log.segments[2].base_offset
    assert why in damage.why
    assert scrubber.damages == 1
    assert (
        f"orders-0/{file.name}, position {position}: {damage.why} (of orders-0, offsets from {base + 7}" in caplog.text
    )


def test_damage_to_the_last_offset_of_a_segment_is_found_by_the_next_segment(log: Log) -> None:
    file = segment_file(log, 0)
    position = place_of(file, BATCHES - 1)
    flip(file, position + 5)
    _, (damage,) = scrub(log)
    assert (damage.position, damage.offset) == (position, BATCHES - 1)
    assert "belongs into the next segment" in damage.why


def test_a_file_that_ends_too_early_is_damaged(log: Log) -> None:
    file = segment_file(log, 0)
    position = place_of(file, 12)
    os.truncate(file, position + 30)
    _, (damage,) = scrub(log)
    assert (damage.position, damage.offset) == (position, 12)


def test_after_damage_was_found_no_reader_gets_the_batch_though_it_was_known_to_be_good(log: Log) -> None:
    file = segment_file(log, 1)
    offset = log.segments[1].base_offset + 5
    assert log.read(offset, 1 << 20).size  # checked, and known from now on
    flip(file, place_of(file, 5) + 70)
    scrub(log)
    with pytest.raises(KafkaError) as refused:
        log.read(offset, 1 << 20)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_gaps_that_compaction_leaves_are_no_damage(tmp_path: Path) -> None:
    manager = managed(tmp_path, "orders")
    log = manager.logs["orders", 0]
    for number in range(30):
        put(log, (f"key-{number % 4}", "value"))
    roll(log)
    clean(log)
    assert not LogScrubber(manager).scrub_all()


def test_messages_of_old_are_checked_too(tmp_path: Path) -> None:
    put_segment(tmp_path, 0, old_messages(30))
    log = managed(tmp_path, config=PLAIN).logs["orders", 0]
    roll(log)
    assert not scrub(log)[1]
    flip(segment_file(log), 40)
    assert len(scrub(log)[1]) == 1


def test_batches_larger_than_a_read_are_read_whole(tmp_path: Path) -> None:
    manager = managed(tmp_path, "orders", config=PLAIN)
    log = manager.logs["orders", 0]
    log.append_as_leader(batch(1, 700_000), 0, 0)
    log.append_as_leader(batch(1, 50), 0, 0)
    roll(log)
    assert not scrub(log)[1]
    file = segment_file(log, -2)
    flip(file, file.stat().st_size - 1)
    assert len(scrub(log)[1]) == 1


def test_a_segment_that_goes_while_it_is_read_is_not_damaged(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    file = segment_file(log, 0)
    flip(file, place_of(file, 5) + 60)
    read = DiskReader.read

    def lose_and_read(self: DiskReader, size: int, position: int) -> bytes:
        monkeypatch.setattr(DiskReader, "read", read)
        data = read(self, size, position)
        log.truncate_to(3)
        return data

    monkeypatch.setattr(DiskReader, "read", lose_and_read)
    assert not scrub(log)[1]


def test_a_log_that_begins_anew_is_not_damaged_while_its_files_are_gone_already(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who removes them says so a moment later."""
    removed, looked_for = threading.Event(), threading.Event()
    restart = LogDisk._new_segment

    def wait_and_restart(self: LogDisk, *arguments: Any) -> Any:
        removed.set()
        looked_for.wait(20)
        time.sleep(0.05)  # who looks has come to the lock, or errs
        return restart(self, *arguments)

    monkeypatch.setattr(LogDisk, "_new_segment", wait_and_restart)
    restarting = threading.Thread(target=log.truncate_fully_and_start_at, args=(100,))
    restarting.start()
    removed.wait(20)
    take = BatchWalk.__init__

    def note(self: BatchWalk, *arguments: Any) -> None:
        take(self, *arguments)
        looked_for.set()

    monkeypatch.setattr(BatchWalk, "__init__", note)
    assert not scrub(log)[1]
    restarting.join(20)


def test_a_segment_that_reaches_into_the_next_one_is_damaged_at_the_batch_that_does(log: Log) -> None:
    """What is not missing is not mended: as it stood, a mended segment would have been the same again."""
    file = segment_file(log, 0)
    position = place_of(file, BATCHES - 1)
    data = bytearray(file.read_bytes())
    stamp(data, position, BATCHES, 0)
    file.write_bytes(data)
    _, (damage,) = scrub(log)
    assert (damage.position, damage.offset, damage.end_offset) == (position, BATCHES - 1, BATCHES)


def test_the_thread_reads_in_rounds_takes_new_settings_and_ends(tmp_path: Path) -> None:
    manager = managed(tmp_path, "orders", config=PLAIN)
    scrubber = LogScrubber(manager, LogScrubberSettings(log_scrub_interval_ms=20))
    scrubber.start()
    until(lambda: scrubber.rounds >= 2)
    assert are_nicer("log-scrubber")
    scrubber.reconfigure(LogScrubberSettings(log_scrub_interval_ms=0))
    names = {thread.name for thread in threading.enumerate()}
    scrubber.stop()
    rounds = scrubber.rounds
    time.sleep(0.1)
    assert scrubber.rounds == rounds, names
    manager.shutdown()


def test_the_rate_is_held(tmp_path: Path) -> None:
    manager = managed(tmp_path, "orders", config=PLAIN)
    log = manager.logs["orders", 0]
    size = sum(segment.size for segment in log.segments[:-1])
    scrubber = LogScrubber(manager, LogScrubberSettings(log_scrub_max_bytes_per_second=size * 4))
    began = time.monotonic()
    scrubber.scrub_all()
    assert time.monotonic() - began > 0.15
    manager.shutdown()


@pytest.mark.parametrize(("error", "damages"), [(errno.EIO, 2), (errno.EMFILE, 0), (errno.ENOMEM, 0)])
def test_an_error_of_the_disk_is_damage_and_one_of_the_machine_is_none(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int, damages: int
) -> None:
    def refuse(self: DiskReader, size: int, position: int) -> bytes:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(DiskReader, "read", refuse)
    scrubber, found = scrub(log)
    assert len(found) == damages
    assert caplog.text.count("scrubbing it failed") == 2 - damages
    assert not any(scrubber.look_at(log, each, threading.Event()).is_read for each in log.segments[: 2 - damages])


def test_a_segment_that_left_its_log_counts_as_read_and_one_of_a_failed_log_does_not(log: Log) -> None:
    scrubber, _ = scrub(log)
    first, stopped = log.segments[0], threading.Event()
    assert scrubber.look_at(log, log.active_segment, stopped) == Look(is_read=True)
    stopped.set()
    assert scrubber.look_at(log, first, stopped) == Look(is_read=False)
    stopped.clear()
    log.mark_failed("its directory is offline")
    assert scrubber.look_at(log, first, stopped) == Look(is_read=False)


def test_the_segments_of_a_log_that_was_deleted_count_as_read(log: Log) -> None:
    scrubber, _ = scrub(log)
    log.discard()
    assert scrubber.look_at(log, log.segments[0], threading.Event()) == Look(is_read=True)

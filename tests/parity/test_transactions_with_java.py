"""What belongs to a log's transactions, by Kafka's own classes and by ours, from the same batches."""

import random
import shutil
import time
from pathlib import Path

import pytest

from kbroker.protocol.records.batch import split_batches
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.log import AppendOrigin, Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.offset_lookup import collect_aborted
from tests.fixtures.java import JavaTool
from tests.segment.batches import batch, new_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

PROGRAM = str(Path(__file__).with_name("Transactions.java"))
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200, retention_ms=-1)
REBUILT = (".txnindex", ".snapshot")


def write(log: Log, events: int, seed: int) -> None:
    """Batches of several producers inside of transactions and outside, markers of both kinds, new epochs."""
    drawn = random.Random(seed)
    epochs, sequences, coordinator_epoch = dict.fromkeys(range(5), 0), dict.fromkeys(range(5), 0), 0
    began = int(time.time() * 1000)  # what Kafka reads in a snapshot may have expired
    for number in range(events):
        producer = drawn.randrange(5)
        at = began + number
        if producer and drawn.random() < 0.3:
            if drawn.random() < 0.2:  # the coordinator fences the producer that was
                epochs[producer] += 1
                sequences[producer] = 0
            coordinator_epoch += drawn.random() < 0.1
            decision = drawn.choice((ControlType.COMMIT, ControlType.ABORT))
            marker = control_batch(decision, producer, epochs[producer], coordinator_epoch, at)
            log.append_as_leader(marker, number // 40, at, AppendOrigin.COORDINATOR)
            continue
        count = drawn.randrange(1, 4)
        data = batch(
            count,
            timestamp=at,
            producer_id=producer,
            producer_epoch=epochs[producer],
            base_sequence=sequences[producer],
            transactional=producer > 0,
        )
        log.append_as_leader(data, number // 40, at)
        sequences[producer] += count


def told_by_us(log: Log) -> list[str]:
    """The same lines that the program prints."""
    end = log.log_end_offset
    lines = []
    for offset in range(end + 1):
        log.update_high_watermark(offset)
        lines.append(f"stable {offset} {log.last_stable_offset}")
    for start in range(end):
        for upper in range(start + 1, end + 1):
            found = [f" {each.producer_id}:{each.first_offset}" for each in collect_aborted(log.segments, start, upper)]
            if found:
                lines.append(f"aborted {start} {upper}{''.join(found)}")
    return lines


def files(folder: Path) -> dict[str, bytes]:
    """Transaction indexes (Kafka leaves empty ones) and producer snapshots."""
    found = {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in REBUILT}
    return {name: data for name, data in sorted(found.items()) if data}


def entries(snapshot: bytes) -> list[bytes]:
    """A snapshot's producers, in order of their bytes: Kafka writes them as its map yields them."""
    return sorted(snapshot[at : at + 46] for at in range(10, len(snapshot), 46))


def batches_of(log: Log) -> list[bytes]:
    """In the order of their offsets."""
    found = []
    for segment in log.segments:
        data = bytes(log.read(segment.base_offset, segment.size).read()) if segment.size else b""
        found += [data[position : position + size] for position, size in split_batches(data)]
    return found


def by_kafka(java_tool: JavaTool, folder: Path, batches: list[bytes], cut_at: int = -1) -> list[str]:
    arguments = [str(folder), str(CONFIG.segment_bytes), str(CONFIG.index_interval_bytes), str(cut_at)]
    return java_tool(PROGRAM, *arguments, given="".join(f"{batch.hex()}\n" for batch in batches)).splitlines()


def check_files(ours: dict[str, bytes], theirs: dict[str, bytes]) -> None:
    """The same transaction indexes, byte for byte; the same producers in the snapshots that both have."""
    indexes = {name: data for name, data in ours.items() if name.endswith(".txnindex")}
    assert indexes == {name: data for name, data in theirs.items() if name.endswith(".txnindex")}
    snapshots = sorted(ours.keys() & theirs.keys() - indexes.keys())
    assert snapshots[-1] == max(name for name in theirs if name.endswith(".snapshot"))
    for name in snapshots:
        assert entries(ours[name]) == entries(theirs[name]), name


@pytest.mark.parametrize("seed", range(2))
def test_appends_give_the_same_stable_offsets_aborted_transactions_and_files(
    java_tool: JavaTool, tmp_path: Path, seed: int
) -> None:
    log = new_log(tmp_path, CONFIG)
    write(log, 100, seed)
    assert len(log.segments) > 3
    folder = tmp_path / "by-kafka" / log.name
    folder.mkdir(parents=True)
    told = by_kafka(java_tool, folder, batches_of(log))
    assert told == told_by_us(log)
    assert any(line.startswith("aborted") for line in told)
    log.close()
    check_files(files(log.directory), files(folder))


@pytest.mark.parametrize("cut", [False, True])
def test_kafka_goes_on_with_what_we_have_written_and_rebuilds_what_is_missing(
    java_tool: JavaTool, tmp_path: Path, cut: bool
) -> None:
    log = new_log(tmp_path, CONFIG)
    write(log, 100, seed=7)
    folder = tmp_path / "by-kafka" / log.name
    log.write_pending()
    shutil.copytree(log.directory, folder)
    for file in folder.iterdir():
        if file.suffix != ".log" and file.name != "leader-epoch-checkpoint":
            file.unlink()
    cut_at = -1
    if cut:
        cut_at = log.segments[len(log.segments) // 2].base_offset + 7
        log.update_high_watermark(cut_at)
        log.truncate_to(cut_at)
        cut_at = log.log_end_offset
    told = by_kafka(java_tool, folder, [], cut_at)
    log.update_high_watermark(log.log_end_offset)
    stable = f"stable {log.log_end_offset} {log.last_stable_offset}"
    aborted = [line for line in told_by_us(log) if line.startswith("aborted")]
    assert told == [stable, *aborted]
    log.close()
    check_files(files(log.directory), files(folder))

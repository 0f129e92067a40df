"""Logs with random lives, stopped or killed, some damaged: what they show once they are opened again.

Each folder lives by its number (folder_histories.py): producers, transactions and their aborts, leader epochs, small
segments, truncations, compactions, starts that move, a leader without a batch. An undamaged one is the same afterwards,
and no warning is written. Damage beside the batches costs nothing, but for what `KNOWN` lists; damage in them costs
records, but none is served that was not there, nor under another offset, unless it is of the last batch of all.

    KBROKER_HISTORIES=1000 pytest tests/segment/test_histories.py    more of them
    KBROKER_HISTORY=1234 pytest tests/segment/test_histories.py      one again, by its number
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import split_batches
from kbroker.segment.log import Log
from tests.segment.batches import NOW, batch
from tests.segment.folder_histories import BATCH_RECORDS, Life, Row, View, manager, read_rows, see

HISTORIES = int(os.environ.get("KBROKER_HISTORIES", "40"))
SEEDS = [int(os.environ["KBROKER_HISTORY"])] if "KBROKER_HISTORY" in os.environ else range(HISTORIES)
BESIDE = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata")
KNOWN = {
    ".timeindex": ("times", "no checksum covers it, and a timestamp that lies tells nobody; Kafka believes it, too"),
    ".txnindex": (
        "aborted",
        "no checksum covers it, and only a scan of all markers would tell; Kafka believes it, too",
    ),
    "leader-epoch-checkpoint": ("epochs", "the last batch is held against it: what it says of older ones is believed"),
}
"""Damaged file -> what may be wrong then, and why. Above the recovery point a crash has them all made anew."""


def lead(path: Path, seed: int) -> tuple[Life, View, random.Random]:
    """A life that has ended."""
    rng = random.Random(seed)
    life = Life(path, rng)
    life.run()
    return life, life.stop(clean_stop=rng.random() < 0.5), rng


def differing(life: Life, before: View, after: View) -> set[str]:
    """What is shown otherwise than before."""
    forgotten = {"producers", "last_stable_offset", "aborted"} if life.has_forgotten else set()
    return {name for name in View._fields if getattr(after, name) != getattr(before, name)} - forgotten


def spoil(path: Path, rng: random.Random, suffixes: tuple[str, ...]) -> str:
    """Damage a file that ends so; returns the ending."""
    files = [each for each in sorted(path.rglob("*")) if each.name.endswith(suffixes)]
    if not files:  # the only one was removed just now
        return ""
    file = rng.choice(files)
    times, data = file.stat(), bytearray(file.read_bytes())
    how, place = rng.randrange(8), rng.randrange(len(data) + 1)
    if how == 0:
        file.unlink()
        return next(suffix for suffix in suffixes if file.name.endswith(suffix))
    if how == 1:
        data = data[:place]
    elif how == 2:
        data = bytearray()
    elif how == 3:
        data[place : place + 8] = bytes(len(data[place : place + 8]))
    elif how == 4:
        data += rng.choice([rng.randbytes(rng.randrange(1, 60)), bytes(rng.randrange(1, 4000))])
    elif place < len(data):
        if how > 5 and file.name.endswith(".log"):  # where no checksum reaches: offset, size and leader epoch
            with suppress(KafkaError):  # it was damaged before
                starts = [start for start, _ in split_batches(data)]
                place = rng.choice([rng.choice(starts), starts[-1]]) + rng.randrange(16)
        data[place] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    return next(suffix for suffix in suffixes if file.name.endswith(suffix))


def goes_on(log: Log, epoch: int) -> None:
    """A next leader appends, behind all that is there."""
    end = log.log_end_offset
    assert log.append_as_leader(batch(), epoch, NOW).base_offset == end


@pytest.mark.parametrize("seed", SEEDS)
def test_an_undamaged_log_is_the_same_once_it_is_opened(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life, before, _ = lead(tmp_path, seed)
    for _ in range(2):  # what the first one changed is found by the second
        caplog.clear()
        logs = manager(tmp_path, life.config)
        log = logs.get("orders", 0)
        assert log is not None
        assert differing(life, before, see(log)) == set()
        assert not caplog.records
        logs.shutdown()


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_beside_the_batches_costs_nothing(seed: int, tmp_path: Path) -> None:
    life, before, rng = lead(tmp_path, seed)
    spoilt = {spoil(tmp_path, rng, BESIDE) for _ in range(rng.choice([1, 1, 2]))}
    logs = manager(tmp_path, life.config)
    log = logs.get("orders", 0)
    assert log is not None
    assert not logs.offline_dirs
    if ".snapshot" in spoilt and before.start > 0:  # from an older one on, what lies below the start is not read again
        life.has_forgotten = True
    wrong = differing(life, before, see(log))
    assert wrong <= {KNOWN[suffix][0] for suffix in spoilt if suffix in KNOWN}, spoilt
    goes_on(log, life.epoch + 2)
    logs.shutdown()


@pytest.mark.parametrize("seed", SEEDS)
def test_of_a_log_with_damaged_batches_no_record_is_served_that_was_not_there(seed: int, tmp_path: Path) -> None:
    life, before, rng = lead(tmp_path, seed)
    for _ in range(rng.choice([1, 1, 2])):
        spoil(tmp_path, rng, (".log",))
    logs = manager(tmp_path, life.config)
    log = logs.get("orders", 0)
    assert log is not None
    assert not logs.offline_dirs
    there = set(before.rows)
    served: list[Row] = []
    with suppress(KafkaError):  # what is damaged is refused
        served.extend(read_rows(log))
    assert served == sorted(served, key=lambda row: row[0])
    # No checksum covers base offsets: one that lies is found out by what follows it, and nothing follows the last.
    last = len(served) - BATCH_RECORDS if served and served[-1][0] == log.log_end_offset - 1 else len(served)
    assert there.issuperset(served[: max(last, 0)])
    assert {row[1:] for row in served} <= {row[1:] for row in there}
    goes_on(log, max(life.epoch + 2, log.latest_epoch))  # no checksum covers a batch's leader epoch, either
    logs.shutdown()

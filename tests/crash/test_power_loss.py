"""The power fails: with a flush before each acknowledgement everything acknowledged is there when it is back."""

import random
from pathlib import Path
from typing import Any

import pytest

from kbroker.protocol.records.batch import split_batches
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from tests.crash.power import PowerFailing
from tests.segment.batches import NOW, batch, new_log, reopen

SMALL = LogConfig(segment_bytes=900, index_interval_bytes=100)
APPENDS = 24


def offsets(log: Log) -> list[int]:
    """All offsets that can be read, from the log's start."""
    found: list[int] = []
    position = log.log_start_offset
    while position < log.log_end_offset:
        data = log.read(position, 10_000).read()
        for start, size in split_batches(data):
            found += [record.offset for record in decode_batch(data, start, size)]
        position = found[-1] + 1
    return found


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("seed", [None, 1, 2, 3], ids=["all is lost", "some is kept", "other is kept", "more is kept"])
def test_everything_flushed_survives_a_power_loss_at_any_moment(
    tmp_path: Path, idempotent: bool, seed: int | None
) -> None:
    (tmp_path / "log-dir").mkdir()
    files = PowerFailing()
    log = new_log(tmp_path / "log-dir", SMALL, files)
    producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0} if idempotent else {}
    acknowledged = 0
    rng = None if seed is None else random.Random(seed)
    for number in range(APPENDS):
        sequence: dict[str, Any] = {"base_sequence": 2 * number} if idempotent else {}
        log.append_as_leader(batch(2, timestamp=NOW + number, **producer, **sequence), 1, NOW)
        if number % 3 != 2:  # every third is not flushed, nor acknowledged
            log.flush()
            acknowledged = log.log_end_offset
        written = log.log_end_offset
        target = tmp_path / f"after-{number}"
        target.mkdir()
        files.power_loss(tmp_path / "log-dir", target, rng)
        again = reopen(target, SMALL)
        assert acknowledged <= again.log_end_offset <= written, number
        assert offsets(again) == list(range(again.log_end_offset))
        following: dict[str, Any] = {"base_sequence": again.log_end_offset} if idempotent else {}
        repeated = again.append_as_leader(batch(2, **producer, **following), 2, NOW)
        assert (repeated.base_offset, repeated.duplicate) == (again.log_end_offset - 2, False)
        again.close()
    assert len(log.segments) > 4
    log.close()


def test_what_is_not_flushed_may_be_lost_but_nothing_torn_is_kept(tmp_path: Path) -> None:
    (tmp_path / "log-dir").mkdir()
    files = PowerFailing()
    log = new_log(tmp_path / "log-dir", SMALL, files)
    log.append_as_leader(batch(2), 1, NOW)
    log.flush()
    for number in range(20):
        log.append_as_leader(batch(2, timestamp=NOW + number), 1, NOW)
    for seed in range(30):
        target = tmp_path / str(seed)
        target.mkdir()
        files.power_loss(tmp_path / "log-dir", target, random.Random(seed))
        again = reopen(target, SMALL)
        assert 2 <= again.log_end_offset <= 42
        assert offsets(again) == list(range(again.log_end_offset))
        again.close()
    log.close()

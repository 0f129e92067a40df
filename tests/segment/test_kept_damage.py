"""A segment that was whole on disk, and holds damage now: what its recovery leaves as it is."""

from pathlib import Path
from typing import Any

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import read_header
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.log import AppendOrigin, Log
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, fill, new_log, reopen, write_in_transaction

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=-1)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x80
    path.write_bytes(data)


def served(log: Log) -> list[int]:
    """Base offsets of all batches that are not refused."""
    found, offset = [], 0
    while offset < log.log_end_offset:
        try:
            header = read_header(log.read(offset, 1).read())
        except KafkaError as error:
            if error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            offset += 1
        else:
            found.append(header.base_offset)
            offset = header.next_offset
    return found


LENGTH, MAGIC, PAYLOAD = 9, 16, 70  # 8 MiB more than there is; no format


@pytest.mark.parametrize("known", [{"clean": True}, {"recovery_point": 50}], ids=["clean stop", "crash"])
@pytest.mark.parametrize("lost", ["index", "timeindex", "txnindex"])
@pytest.mark.parametrize("place", [PAYLOAD, LENGTH, MAGIC])
@pytest.mark.parametrize("with_snapshots", [True, False])
def test_a_lost_index_beside_a_rotten_batch_costs_that_batch_alone(
    tmp_path: Path, known: dict[str, Any], lost: str, place: int, with_snapshots: bool
) -> None:
    log = new_log(tmp_path, SMALL)
    for sequence in range(2):
        write_in_transaction(log, sequence)
    log.append_as_leader(control_batch(ControlType.ABORT, 5, 0, 0, NOW), 0, NOW, AppendOrigin.COORDINATOR)
    fill(log, 41)
    for sequence in range(2, 4):
        write_in_transaction(log, sequence)
    fill(log, 4)
    end, bases = log.log_end_offset, [segment.base_offset for segment in log.segments]
    rotten = 4
    size, position = log.segments[0].size, log.segments[0].find(rotten)
    log.close()
    for snapshot in [] if with_snapshots else log.directory.glob("*.snapshot"):
        snapshot.unlink()
    flip(log.directory / f"{0:020d}.log", position + place)
    file = log.directory / f"{0:020d}.{lost}"
    flip(file, 2) if lost == "txnindex" else file.unlink()
    again = reopen(tmp_path, SMALL, high_watermark=end, **known)
    assert [segment.base_offset for segment in again.segments] == bases
    assert again.segments[0].size == size
    assert again.log_end_offset == end
    is_way_lost = place == LENGTH and lost != "txnindex"
    missing = set(range(rotten, bases[1])) if is_way_lost else {rotten}
    assert set(served(again)) == set(range(end)) - missing
    found = again.aborted_transactions(again.read(0, 1))
    assert [(each.first_offset, each.last_offset) for each in found] == [(0, 2)]
    write_in_transaction(again, 4)
    again.close()


def test_a_lost_index_beside_a_rotten_batch_of_the_last_segment_costs_that_batch_alone(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 20)
    position = log.segments[0].find(4)
    log.close()
    flip(log.directory / f"{0:020d}.log", position + PAYLOAD)
    (log.directory / f"{0:020d}.index").unlink()
    again = reopen(tmp_path, clean=True, high_watermark=20)
    assert again.log_end_offset == 20
    assert served(again) == [each for each in range(20) if each != 4]
    again.close()

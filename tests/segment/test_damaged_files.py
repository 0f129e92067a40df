"""Files beside the batches that are gone or damaged: what the batches say holds, whatever these say."""

from pathlib import Path

import pytest

from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.log import AppendOrigin, Log
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import NOW, batch, fill, new_log, reopen

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=-1)


def write(log: Log, sequence: int) -> None:
    data = batch(1, producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True)
    log.append_as_leader(data, 0, NOW)


@pytest.mark.parametrize("with_snapshots", [True, False])
def test_an_old_segment_that_is_recovered_after_a_clean_stop_does_not_set_producers_back(
    tmp_path: Path, with_snapshots: bool
) -> None:
    log = new_log(tmp_path, SMALL)
    for sequence in range(30):
        write(log, sequence)
    log.append_as_leader(control_batch(ControlType.COMMIT, 5, 0, 0, NOW), 0, NOW, AppendOrigin.COORDINATOR)
    fill(log, 9)
    end = log.log_end_offset
    log.close()
    for snapshot in [] if with_snapshots else log.directory.glob("*.snapshot"):
        snapshot.unlink()
    (log.directory / f"{0:020d}.index").unlink()
    again = reopen(tmp_path, SMALL, clean=True, high_watermark=end)
    assert again.last_stable_offset == end
    entry = again.producers.state.producers[5]
    assert [each.last_sequence for each in entry.batches][-1] == 29
    assert (log.directory / f"{end:020d}.snapshot").exists() == with_snapshots
    write(again, 30)
    again.close()

"""What becomes of a log whose disk fails."""

from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from tests.segment.batches import NOW, batch, fill, new_log


def test_a_log_that_failed_says_why_each_time(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 1)
    log.mark_failed("its directory is offline: Input/output error")
    for _ in range(2):
        with pytest.raises(KafkaError, match="Input/output error") as caught:
            log.append_as_leader(batch(), 0, NOW)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.discard()


def test_a_log_tells_its_name_place_and_size(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 2)
    assert (log.name, log.log_dir, log.directory) == ("orders-0", str(tmp_path), tmp_path / "orders-0")
    assert log.size == (log.directory / f"{0:020d}.log").stat().st_size
    assert (log.unflushed_messages, log.latest_epoch, log.failure) == (2, 0, None)
    log.close()

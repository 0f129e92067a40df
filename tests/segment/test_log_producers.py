"""The producers of a log."""

from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.segment.log import AppendOrigin
from tests.segment.batches import NOW, batch, new_log, reopen


def test_a_coordinator_that_was_replaced_ends_no_transaction(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for epoch, refused in ((3, False), (2, True), (3, False)):
        marker = control_batch(ControlType.ABORT, 7, 0, epoch, NOW)
        if refused:
            with pytest.raises(KafkaError) as caught:
                log.append_as_leader(marker, 0, NOW, AppendOrigin.COORDINATOR)
            assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        else:
            log.append_as_leader(marker, 0, NOW, AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 2
    log.close()


def test_batches_sent_again_after_a_restart_are_known_from_the_log(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for sequence in range(6):
        log.append_as_leader(batch(producer_id=7, producer_epoch=0, base_sequence=sequence), 0, NOW)
    log.close()
    log = reopen(tmp_path, clean=True)
    for sequence in range(2, 6):
        result = log.append_as_leader(batch(producer_id=7, producer_epoch=0, base_sequence=sequence), 0, NOW)
        assert (result.duplicate, result.base_offset, result.last_offset) == (True, sequence, sequence)
        assert result.log_append_time_ms == NOW
    log.close()

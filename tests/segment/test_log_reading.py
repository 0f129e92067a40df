"""Reading while segments go."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.segment.files import FilePool, FileRemoved
from kbroker.segment.log_config import LogConfig
from kbroker.segment.recovery import LogSetup, create_log
from kbroker.segment.trash import Trash
from tests.segment.batches import NOW, TOPIC_ID, fill

AT_ONCE = LogConfig(segment_bytes=500, index_interval_bytes=50, retention_ms=-1, file_delete_delay_ms=0)


@pytest.mark.slow
@pytest.mark.parametrize("restart", [True, False], ids=["truncated fully", "deleted"])
def test_a_segment_that_goes_under_a_reader_is_no_failure_of_the_disk(tmp_path: Path, restart: bool) -> None:
    pool = FilePool(capacity=1)  # files are opened anew for each use
    trash = Trash(pool.files)
    log = create_log(LogSetup(pool, trash, NOW), str(tmp_path / "orders-0"), "orders", 0, AT_ONCE, TOPIC_ID)
    stop = threading.Event()
    problems: list[BaseException] = []
    found = []

    def read() -> None:
        while not stop.is_set():
            try:
                found.append(log.read(log.log_start_offset, 10_000).size)
                log.offset_for_timestamp(NOW)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    problems.append(error)
                    return
            except BaseException as error:
                problems.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(60):
        fill(log, 8)
        if restart:
            log.truncate_fully_and_start_at(0)
        else:
            log.delete_records(log.log_end_offset - 1)
            log.retention(NOW)
            trash.run_due()
    stop.set()
    reader.join()
    assert problems == []
    assert log.failure is None
    assert len(found) > 10
    log.close()


def test_a_reader_of_a_segment_that_left_never_meets_its_successors_files(tmp_path: Path) -> None:
    pool = FilePool(capacity=16)
    config = replace(AT_ONCE, segment_bytes=5000)
    log = create_log(LogSetup(pool, Trash(pool.files), NOW), str(tmp_path / "orders-0"), "orders", 0, config, TOPIC_ID)
    fill(log, 20)
    log.write_pending()
    former = log.segments[0]
    log.truncate_fully_and_start_at(0)
    fill(log, 3)
    for look in (lambda: former.find(3), lambda: former.time_index.lookup(NOW + 5), lambda: former.header_at(0)):
        with pytest.raises(FileRemoved):
            look()
    assert former.index is not log.segments[0].index
    log.close()


def test_what_was_read_is_not_told_without_its_aborted_transactions(tmp_path: Path) -> None:
    """Segments may go, with their transaction indexes, after a slice of them was found."""
    pool = FilePool(capacity=16)
    log = create_log(LogSetup(pool, Trash(pool.files), NOW), str(tmp_path / "orders-0"), "orders", 0, AT_ONCE, TOPIC_ID)
    fill(log, 20)
    records = log.read(0, 100)
    assert log.aborted_transactions(records, 20) == []
    log.delete_records(15)
    log.retention(NOW)
    with pytest.raises(KafkaError) as caught:
        log.aborted_transactions(records, 20)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    log.close()

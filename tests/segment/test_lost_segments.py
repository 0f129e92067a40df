"""What a loss of power has left out between segments: the kernel writes them in whatever order it likes."""

import os
from pathlib import Path

import pytest

from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_dir import LogDir
from tests.segment.batches import TOPIC_ID, close_all, fill, new_log, reopen
from tests.segment.test_log_manager import start

SMALL = LogConfig(segment_bytes=500)


def crash(log: Log) -> None:
    log.write_pending()
    log.discard()
    close_all(log)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_segment_that_was_lost_with_the_power_leaves_no_hole_in_the_log(tmp_path: Path, kept: int) -> None:
    """Whole batches of it are missing, so nothing that is left of it is damaged."""
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    segment, following = log.segments[1:3]
    batches = following.base_offset - segment.base_offset
    assert batches > 1
    size = segment.size // batches * kept
    crash(log)
    os.truncate(segment.file.path, size)
    again = reopen(tmp_path, SMALL, has_lost_power=True)
    assert (again.log_end_offset, len(again.segments)) == (segment.base_offset + kept, 2)
    assert again.is_short
    again.close()


@pytest.mark.parametrize("starts_behind", [True, False])
def test_what_is_missing_below_the_start_or_may_be_by_right_ends_no_log(tmp_path: Path, starts_behind: bool) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    first, following = log.segments[:2]
    count = len(log.segments)
    crash(log)
    os.truncate(first.file.path, 0)
    again = reopen(
        tmp_path, SMALL, has_lost_power=starts_behind, log_start_offset=following.base_offset if starts_behind else 0
    )
    assert (again.log_end_offset, len(again.segments)) == (60, count)
    again.close()


@pytest.mark.parametrize(
    ("policy", "boot", "end"), [("delete", b"other", 0), ("compact", b"other", 60), ("delete", b"one", 60)]
)
def test_only_after_a_loss_of_power_and_without_compaction_a_gap_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, boot: bytes, end: int
) -> None:
    def configs(topic: str) -> LogConfig:
        return LogConfig(segment_bytes=500, cleanup_policy=(policy,))

    monkeypatch.setattr(LogDir, "boot_id", lambda directory: b"one")
    manager = start(tmp_path, configs=configs)
    log = manager.create("orders", 0, TOPIC_ID, configs("orders"))
    manager.note_boot()
    fill(log, 60)
    first = log.segments[0].file.path
    assert len(log.segments) > 1
    manager.abandon()
    os.truncate(first, 0)
    monkeypatch.setattr(LogDir, "boot_id", lambda directory: boot)
    manager = start(tmp_path, configs=configs)
    assert manager.logs["orders", 0].log_end_offset == end
    manager.shutdown()

"""What a crash has left of a segment: what is cut, what is kept, where it is split."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kbroker.protocol.records.batch import stamp
from kbroker.protocol.records.compression import CompressionType
from kbroker.segment.log_config import LogConfig
from tests.protocol.records.old_messages import message, wrapper
from tests.segment.batches import NOW, batch, fill, new_log, put_segment, reopen
from tests.segment.test_recovery import SMALL, contents, crash


def far_apart(*offsets: int) -> bytes:
    data = bytearray()
    for offset in offsets:
        one = batch()
        stamp(one, 0, offset, 2)
        data += one
    return bytes(data)


FAR = 1 << 31


@pytest.mark.parametrize("begun", [False, True])
def test_a_segment_whose_offsets_lie_too_far_apart_is_split_and_nothing_is_lost(tmp_path: Path, begun: bool) -> None:
    """Compaction of old brokers left such. `begun`: the split was interrupted before the first segment was cut."""
    parts = far_apart(0, 1), far_apart(FAR, FAR + 1), far_apart(3 * FAR, 3 * FAR + 7)
    put_segment(tmp_path, 0, b"".join(parts))
    last = far_apart(4 * FAR)
    put_segment(tmp_path, 4 * FAR, last)
    if begun:
        put_segment(tmp_path, FAR, b"".join(parts[1:]))
    log = reopen(tmp_path)
    assert [segment.base_offset for segment in log.segments] == [0, FAR, 3 * FAR, 4 * FAR]
    assert [segment.file.read(segment.size, 0) for segment in log.segments] == [*parts, last]
    assert log.log_end_offset == 4 * FAR + 1
    log.update_high_watermark(log.log_end_offset)
    assert log.read(FAR + 1, 1 << 20).read() == far_apart(FAR + 1)
    assert log.read(2, 1 << 20).read() == parts[1]
    log.close()


def test_a_compressed_message_of_old_that_lies_too_far_behind_begins_the_next_segment_with_its_first_offset(
    tmp_path: Path,
) -> None:
    first = message(1, 0, timestamp=NOW)
    far = wrapper(1, FAR + 5, [(b"k", b"1"), (b"k", b"2")], CompressionType.GZIP, [NOW, NOW])
    for _ in range(2):
        put_segment(tmp_path, 0, first + far)
        put_segment(tmp_path, 2 * FAR, far_apart(2 * FAR))
        log = reopen(tmp_path)
        assert [segment.base_offset for segment in log.segments] == [0, FAR + 5, 2 * FAR]
        assert log.read(FAR + 5, 1 << 20).read() == far
        log.close()


def test_an_offset_that_flipped_to_far_behind_is_damage(tmp_path: Path) -> None:
    put_segment(tmp_path, 0, far_apart(0, 1, FAR * 8, 3, 4))
    log = reopen(tmp_path)
    assert (len(log.segments), log.log_end_offset) == (1, 2)
    log.close()
    put_segment(tmp_path, 0, far_apart(0, 1, FAR * 8))
    log = reopen(tmp_path)
    assert (len(log.segments), log.log_end_offset) == (1, 2)
    log.close()


@pytest.mark.parametrize("witness", ["high_watermark", "recovery_point"])
def test_a_last_batch_that_lies_far_behind_is_no_damage_where_a_checkpoint_knows_of_it(
    tmp_path: Path, witness: str
) -> None:
    known: dict[str, Any] = {witness: FAR * 8 + 1}
    file = put_segment(tmp_path, 0, far_apart(0, 1, FAR * 8))
    shutil.copytree(file.parent, tmp_path / "kept")
    log = reopen(tmp_path, **known)
    assert ([segment.base_offset for segment in log.segments], log.log_end_offset) == ([0, FAR * 8], FAR * 8 + 1)
    assert (contents(log), log.is_short) == (far_apart(0, 1, FAR * 8), False)
    log.close()
    shutil.rmtree(file.parent)
    shutil.copytree(tmp_path / "kept", file.parent)
    log = reopen(tmp_path, **{**known, witness: FAR * 8})
    assert log.log_end_offset == 2
    log.close()


def test_a_stale_batch_that_reaches_into_the_next_segment_is_cut(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    fill(log, 3, count=10, epoch=1)
    log.write_pending()
    path = Path(log.active_segment.file.path)
    stale = path.read_bytes()
    log.truncate_to(25)
    log.apply_config(LogConfig(segment_bytes=1500))
    fill(log, 1, count=10, epoch=2)
    assert [segment.base_offset for segment in log.segments] == [0, 25]
    log.close()
    path.write_bytes(stale)
    again = reopen(tmp_path)
    assert [header.last_offset for _, header in again.segments[0].headers()] == [9, 19]
    assert (again.log_end_offset, again.leader_epochs.entries) == (35, ((1, 0), (2, 25)))
    again.close()


def put_back(folder: Path, kept: Path) -> None:
    """Files that a truncation has removed, as they were."""
    for path in kept.iterdir():
        if not (folder / path.name).exists():
            shutil.copy(path, folder)


@pytest.mark.parametrize("records", [2, 20])
def test_a_dropped_segment_that_is_back_goes_with_all_of_its_older_epoch(tmp_path: Path, records: int) -> None:
    """As a file system may leave it that syncs names after contents: below it the log has gone on, to its offsets
    (2 records) or beyond them (20)."""
    log = new_log(tmp_path, SMALL)
    fill(log, 30, epoch=1)
    log.write_pending()
    shutil.copytree(log.directory, tmp_path / "kept")
    first = log.segments[1].base_offset
    log.truncate_to(first - 3)
    log.apply_config(LogConfig())
    fill(log, records, epoch=2)
    log.write_pending()
    after = contents(log)
    crash(log)
    put_back(log.directory, tmp_path / "kept")
    again = reopen(tmp_path, SMALL, recovery_point=first - 3)
    assert contents(again) == after
    assert again.log_end_offset == first - 3 + records
    assert again.leader_epochs.entries == ((1, 0), (2, first - 3))
    again.close()


def test_a_tail_of_an_older_epoch_behind_what_was_written_over_it_is_cut(tmp_path: Path) -> None:
    """A truncation that did not reach the disk, and newer batches that did: of the same sizes, so that all fit."""
    log = new_log(tmp_path)
    fill(log, 10, epoch=1)
    log.write_pending()
    path = Path(log.active_segment.file.path)
    stale = path.read_bytes()
    log.truncate_to(5)
    fill(log, 2, epoch=2)
    crash(log)
    newer = path.read_bytes()
    path.write_bytes(newer + stale[len(newer) :])
    again = reopen(tmp_path, recovery_point=5)
    assert (again.log_end_offset, again.leader_epochs.entries) == (7, ((1, 0), (2, 5)))
    again.close()


def test_epochs_below_the_recovery_point_are_believed_whatever_they_say(tmp_path: Path) -> None:
    """No checksum covers them, and what is promised to be on disk is no remainder of a truncation."""
    log = new_log(tmp_path)
    fill(log, 10, epoch=1)
    crash(log)
    path = Path(log.active_segment.file.path)
    data = bytearray(path.read_bytes())
    data[12:16] = (7).to_bytes(4, "big")
    path.write_bytes(data)
    again = reopen(tmp_path, recovery_point=10)
    assert again.log_end_offset == 10
    again.close()

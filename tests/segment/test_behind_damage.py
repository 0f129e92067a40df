from __future__ import annotations

from pathlib import Path

import pytest

from tests.segment.batches import fill, new_log, reopen
from tests.segment.test_recovery import SMALL, crash


@pytest.mark.parametrize("damaged", [2, 9, None], ids=["early", "last but one", "the tail"])
def test_a_log_with_whole_batches_behind_damage_is_short_whatever_was_promised(
    tmp_path: Path, damaged: int | None
) -> None:
    """A crash leaves nothing behind what it has torn; no checkpoint may have been written yet."""
    log = new_log(tmp_path)
    fill(log, 11)
    size = log.size // 11
    path = Path(log.active_segment.file.path)
    crash(log)
    data = bytearray(path.read_bytes())
    data[size * (10 if damaged is None else damaged) + size - 1] ^= 1
    path.write_bytes(data)
    again = reopen(tmp_path)
    assert again.log_end_offset == (10 if damaged is None else damaged)
    assert (again.is_short, again.promised_offset) == ((False, 0) if damaged is None else (True, damaged + 2))
    again.close()


@pytest.mark.parametrize("how", ["damaged", "its tail"])
def test_a_log_with_segments_behind_damage_is_short_whatever_was_promised(tmp_path: Path, how: str) -> None:
    log = new_log(tmp_path, SMALL)
    fill(log, 60)
    path, last = Path(log.segments[2].file.path), log.segments[-1].base_offset
    crash(log)
    if how == "damaged":
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
    else:
        path.write_bytes(path.read_bytes()[:-10])
    again = reopen(tmp_path, SMALL)
    assert again.log_end_offset < last
    assert (again.is_short, again.promised_offset) == (True, last + 1)
    again.close()

"""What is wrong with batches that are read, and which of them."""

from pathlib import Path

import pytest

from kbroker.protocol.errors import KafkaError
from kbroker.segment.batch_checks import check_batches
from kbroker.segment.log_config import LogConfig
from tests.segment.batches import batch, fill, new_log, reopen

CONFIG = LogConfig(index_interval_bytes=300)


def test_good_batches_end_where_the_first_bad_byte_is(tmp_path: Path) -> None:
    log = new_log(tmp_path, CONFIG)
    fill(log, 5)
    data = bytearray(log.active_segment.file.read(log.size, 0))
    log.close()
    size = len(data) // 5
    assert check_batches(data, 0) == (5 * size, "")
    assert check_batches(data[:-3], 0) == (4 * size, "")
    data[3 * size + 70] ^= 1
    good, why = check_batches(data, 0)
    assert good == 3 * size
    assert "offset 3" in why
    assert check_batches(data, 1)[0] == 0


@pytest.mark.parametrize(
    ("first_offsets", "wrong", "expected"),
    [
        ([0, 1, 9, 3, 4], 2, 0),  # the third says 9
        ([0, 1, 0, 3, 4], 2, 0),  # the third says 0
        ([9, 1, 2, 3, 4], 0, 0),  # the first is not the one that was looked for
        ([0, 5, 9, 13], 4, 0),  # gaps alone are what compaction leaves
    ],
)
def test_of_two_batches_whose_offsets_do_not_ascend_the_one_behind_a_gap_is_wrong(
    first_offsets: list[int], wrong: int, expected: int
) -> None:
    data = bytearray()
    for offset in first_offsets:
        one = batch()
        one[:8] = offset.to_bytes(8, "big")
        data += one
    size = len(batch())
    good, why = check_batches(data, 0, expected)
    assert good == wrong * size
    assert bool(why) == (wrong < len(first_offsets))


def test_the_header_of_a_batch_that_is_cut_off_tells_whether_the_one_before_it_is_wrong() -> None:
    data = batch() + batch()
    size = len(batch())
    data[7], data[size + 7] = 14, 11
    assert check_batches(data[: size + 61], 0, 10)[0] == 0
    assert check_batches(data[: size + 60], 0, 10)[0] == size
    assert check_batches(data[: size + 61], 0, 14)[0] == size


def test_a_batch_that_reaches_into_the_next_segment_is_wrong() -> None:
    data = batch(2) + batch(2)
    size = len(batch(2))
    data[size + 7] = 2
    assert check_batches(data, 0, 0, 4) == (2 * size, "")
    good, why = check_batches(data, 0, 0, 3)
    assert good == size
    assert "offset 3 belongs into the next segment" in why
    assert check_batches(data[:-1], 0, 0, 3) == (size, "")  # who reads on sees all of it


@pytest.mark.parametrize("cut_within", [0, 1, 30])
def test_a_batch_that_a_read_cuts_is_not_believed_before_what_follows_confirms_it(
    tmp_path: Path, cut_within: int
) -> None:
    """The header behind it lies beyond what is read then: its offset may lie, and checksums do not cover it."""
    log = new_log(tmp_path, CONFIG)
    fill(log, 5)
    size = log.size // 5
    file = log.directory / log.active_segment.file.name
    log.close()
    data = bytearray(file.read_bytes())
    data[2 * size] ^= 0x04
    file.write_bytes(data)
    again = reopen(tmp_path, CONFIG, clean=True, high_watermark=5)
    assert len(again.read(0, 3 * size - 40 + cut_within).read()) < 3 * size
    with pytest.raises(KafkaError, match="offset 3 follows"):
        again.read(2, 1 << 20)
    again.close()

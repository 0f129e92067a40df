"""A damaged segment is made anew from its good part and another replica's batches; the log's ends stay."""

from pathlib import Path

import pytest

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.control import ControlType
from kbroker.segment.log import Log
from kbroker.segment.log_config import LogConfig
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET
from kbroker.segment.scrubber import Damage
from kbroker.segment.segment_mending import NotMendable, SegmentMending
from tests.segment.batches import NOW, reopen
from tests.segment.compaction import end_transaction, put, roll
from tests.segment.test_cleaner import managed
from tests.segment.test_scrubber import flip, place_of, scrub, segment_file

CONFIG = LogConfig(index_interval_bytes=300)


def replica(path: Path, config: LogConfig = CONFIG) -> Log:
    """A log of three closed segments, one with an aborted transaction, the same at each call."""
    path.mkdir()
    log = managed(path, "orders", config=config).logs["orders", 0]
    for number in range(30):
        put(log, (f"key-{number % 3}", f"{number:0100d}"), timestamp=NOW + number)
    put(log, ("key", "aborted"), producer=(7, 0, 0), transactional=True)
    end_transaction(log, ControlType.ABORT, 7)
    roll(log)
    put(log, ("key", "behind"))
    roll(log)
    return log


def records(log: Log, offset: int, max_bytes: int = 1 << 20) -> memoryview:
    """What a replica answers to Fetch."""
    return memoryview(log.read(offset, max_bytes).read())


def everything(log: Log) -> bytes:
    return b"".join((log.directory / segment.file.name).read_bytes() for segment in log.segments)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Log, Log]:
    return replica(tmp_path / "one"), replica(tmp_path / "other")


def damaged(log: Log, batch: int, inside: int = 70) -> Damage:
    file = segment_file(log, 1)
    flip(file, place_of(file, batch) + inside)
    (damage,) = scrub(log)[1]
    return damage


@pytest.mark.parametrize("batch", [0, 5, 29, 31], ids=["first", "in the middle", "near the end", "the marker"])
@pytest.mark.parametrize("inside", [3, 9, 65], ids=["base offset", "length", "records"])
def test_the_mended_log_is_byte_for_byte_what_the_other_replica_has(
    logs: tuple[Log, Log], batch: int, inside: int
) -> None:
    one, other = logs
    before = one.segments[1]
    mending = SegmentMending(damaged(one, batch, inside))
    while not mending.is_whole:
        assert mending.add(records(other, mending.next_offset, max_bytes=500))
    assert mending.swap_in()
    assert not scrub(one)[1]
    assert everything(one) == everything(other)
    assert one.segments[1] is not before
    assert (one.log_start_offset, one.log_end_offset) == (other.log_start_offset, other.log_end_offset)
    for offset in range(one.log_end_offset):
        assert records(one, offset, 1) == records(other, offset, 1)
    ours, theirs = (log.offset_for_timestamp(NOW + 17) for log in (one, other))
    assert ours == theirs
    transactions = one.segments[1].transaction_index()
    assert transactions is not None
    assert [each.producer_id for each in transactions.entries] == [7]
    assert one.segments[1].index.damage(one.segments[1].size) is None
    assert one.segments[1].index.count > 3


def test_what_was_mended_is_there_after_the_next_start(tmp_path: Path) -> None:
    one, other = replica(tmp_path / "one"), replica(tmp_path / "other")
    mending = SegmentMending(damaged(one, 5))
    mending.add(records(other, mending.next_offset))
    assert mending.swap_in()
    one.close()
    again = reopen(tmp_path / "one", CONFIG)
    assert again.log_end_offset == other.log_end_offset
    assert not scrub(again)[1]
    assert not list((tmp_path / "one").rglob("*.swap"))
    assert not list((tmp_path / "one").rglob("*.cleaned"))


def test_batches_of_the_other_that_are_damaged_too_are_refused_and_nothing_changes(logs: tuple[Log, Log]) -> None:
    one, other = logs
    damage = damaged(one, 5)
    mending = SegmentMending(damage)
    spoiled = bytearray(records(other, mending.next_offset))
    spoiled[70] ^= 1
    with pytest.raises(KafkaError):
        mending.add(memoryview(spoiled))
    mending.discard()
    assert one.segments[1] is damage.segment
    assert not list(one.directory.glob("*.cleaned"))


def test_a_replica_that_has_nothing_more_gives_no_news(logs: tuple[Log, Log]) -> None:
    mending = SegmentMending(damaged(logs[0], 5))
    assert not mending.add(memoryview(b""))
    assert not mending.is_whole
    mending.discard()


def test_a_log_that_was_cut_meanwhile_is_left_alone(logs: tuple[Log, Log]) -> None:
    one, other = logs
    mending = SegmentMending(damaged(one, 5))
    mending.add(records(other, mending.next_offset))
    one.truncate_to(22)
    assert not mending.swap_in()
    assert one.log_end_offset == 22
    assert not list(one.directory.glob("*.cleaned"))


def test_a_compacted_log_is_not_mended_for_it_might_bring_deleted_keys_back(tmp_path: Path) -> None:
    compacted = LogConfig(cleanup_policy=("compact",), index_interval_bytes=300)
    one = replica(tmp_path / "one", compacted)
    before = everything(one)
    damage = damaged(one, 5)
    with pytest.raises(NotMendable, match="is compacted"):
        SegmentMending(damage)
    assert len(everything(one)) == len(before)
    assert not list(one.directory.glob("*.cleaned"))


def test_offsets_that_the_other_replica_lacks_are_not_dropped_here(logs: tuple[Log, Log]) -> None:
    one, other = logs
    mending = SegmentMending(damaged(one, 5))
    gone = bytearray(records(other, mending.next_offset + 1))
    with pytest.raises(KafkaError, match="does not fit"):
        mending.add(memoryview(gone))
    mending.discard()


def test_a_log_that_was_cut_before_its_mending_began_is_left_alone(logs: tuple[Log, Log]) -> None:
    one, other = logs
    damage = damaged(one, 5)
    one.truncate_to(one.log_end_offset - 1)
    mending = SegmentMending(damage)
    while not mending.is_whole:
        assert mending.add(records(other, mending.next_offset))
    assert not mending.swap_in()
    assert one.segments[1] is damage.segment


def test_who_discards_what_was_swapped_in_removes_nothing_and_what_was_discarded_is_not_swapped_in(
    logs: tuple[Log, Log],
) -> None:
    one, other = logs
    given_up = SegmentMending(damaged(one, 5))
    (damage,) = scrub(one)[1]
    given_up.discard()
    assert not given_up.swap_in()
    mending = SegmentMending(damage)
    mending.add(records(other, mending.next_offset))
    assert mending.swap_in()
    mending.discard()
    assert everything(one) == everything(other)


def test_of_a_hole_that_is_too_large_for_a_segment_nothing_is_fetched(logs: tuple[Log, Log]) -> None:
    log, segment = logs[0], logs[0].segments[0]
    end_offset = segment.base_offset + MAX_RELATIVE_OFFSET + 2
    hole = Damage(log, segment, segment.size, 32, end_offset, "a file is gone", log.truncations, is_hole=True)
    with pytest.raises(NotMendable, match="too much for one segment"):
        SegmentMending(hole)
    fits = SegmentMending(hole._replace(end_offset=end_offset - 1))
    assert fits.next_offset == 32
    fits.discard()

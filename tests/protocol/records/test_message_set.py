"""Messages of magic 0 and 1: read, checked, shown as batches."""

import pytest

from kbroker.protocol.records.batch import holds_messages, read_header, split_batches, verify_crc
from kbroker.protocol.records.compression import CompressionType
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from kbroker.protocol.records.message_set import Message, has_header, messages, read_any_header, to_batches
from kbroker.protocol.records.record import decode_batch
from tests.protocol.records.batches import batch_of
from tests.protocol.records.old_messages import message, wrapper

NOW = 1_700_000_000_000
ROWS = [(b"a", b"1"), (None, b"2"), (b"", None), (b"d", b"x" * 300)]
CODECS = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]


def shown(data: bytes) -> list[tuple[int, int, int, bytes | None, bytes | None]]:
    """What a consumer makes of it."""
    batches = to_batches(data)
    return [
        (record.offset, record.timestamp, record.timestamp_type, record.key, record.value)
        for position, size in split_batches(batches)
        for record in decode_batch(batches, position, size)
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_is_a_batch_of_one_record(magic: int) -> None:
    data = b"noise" + message(magic, 42, timestamp=NOW)
    header = read_any_header(data, 5)
    assert (header.base_offset, header.last_offset, header.next_offset, header.count) == (42, 42, 43, 1)
    assert (header.size, header.magic, header.max_timestamp) == (len(data) - 5, magic, NOW if magic else -1)
    assert (header.partition_leader_epoch, header.producer_id, header.is_control) == (-1, -1, False)
    assert verify_crc(data, 5, header.size)
    assert messages(data, 5, header.size) == [Message(42, NOW if magic else -1, 0, b"key", b"value")]


@pytest.mark.parametrize("magic", [0, 1])
def test_every_flipped_bit_behind_the_crc_is_found(magic: int) -> None:
    good = message(magic, 42, timestamp=NOW)
    for position in range(17, len(good)):
        data = bytearray(good)
        data[position] ^= 4
        assert not verify_crc(data, 0, len(data))
        with pytest.raises(CorruptBatch):
            messages(data, 0, len(data))


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_messages_of_magic_0_have_absolute_offsets(codec: CompressionType) -> None:
    data = wrapper(0, 40, ROWS, codec)
    assert (read_any_header(data).last_offset, read_any_header(data).compression) == (43, codec)
    assert messages(data, 0, len(data)) == [Message(40 + n, -1, 0, *row) for n, row in enumerate(ROWS)]


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_messages_of_magic_1_have_relative_ones_also_with_gaps(codec: CompressionType) -> None:
    times = [NOW, NOW + 5, NOW + 3, NOW + 1]
    data = wrapper(1, 40, ROWS, codec, times)
    assert read_any_header(data).max_timestamp == NOW + 5
    assert messages(data, 0, len(data)) == [Message(40 + n, times[n], 0, *row) for n, row in enumerate(ROWS)]
    compacted = wrapper(1, 40, ROWS, codec, times, gaps=(0, 2))
    assert [each.offset for each in messages(compacted, 0, len(compacted))] == [41, 43]


def test_the_time_of_appending_holds_for_all_messages_inside() -> None:
    data = wrapper(1, 7, ROWS, CompressionType.GZIP, [1, 2, 3, 4], append_time=NOW)
    assert {(each.timestamp, each.timestamp_type) for each in messages(data, 0, len(data))} == {(NOW, 1)}


def test_lz4_frames_of_magic_0_have_kafkas_own_header_checksum() -> None:
    data = wrapper(0, 0, ROWS, CompressionType.LZ4)
    broken = bytearray(data[26:])
    broken[6] ^= 0x55
    assert [each.value for each in messages(message(0, 3, None, bytes(broken), attributes=3), 0, 10**6)] == [
        value for _, value in ROWS
    ]


@pytest.mark.parametrize(
    "data",
    [
        message(1, 5, None, None, attributes=1),
        message(1, 5, None, b"no gzip", attributes=1),
        message(1, 5, None, b"zstd is younger", attributes=4),
        message(1, 5, None, b"", attributes=1),
        message(0, 9, None, wrapper(0, 5, ROWS, CompressionType.GZIP)[26:], attributes=1),
        message(1, 9, None, wrapper(0, 5, ROWS, CompressionType.GZIP)[26:], attributes=1),
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises((CorruptBatch, InvalidRecord)):
        messages(data, 0, len(data))


def test_lengths_are_checked_before_they_are_used() -> None:
    for magic in (0, 1):
        good = message(magic, 5)
        for size in range(len(good)):
            with pytest.raises(CorruptBatch):
                messages(good, 0, size)
        for position in range(8, 12):
            for value in (0, 1, 0x7F, 0xFF):
                data = bytearray(good)
                data[position] = value
                if data != good:
                    with pytest.raises(CorruptBatch):
                        messages(data, 0, len(data))
    assert not has_header(message(0, 1, None, None)[:-1], 0)
    assert has_header(message(0, 1, None, None), 0)
    with pytest.raises(CorruptBatch):
        read_any_header(b"\0" * 17)


def test_messages_and_batches_behind_them_are_all_shown_as_batches() -> None:
    batch = batch_of([(b"k", b"v", [("h", b"1")], NOW)], 0, base_offset=30)
    data = message(0, 0, b"a", b"b") + message(0, 1) + wrapper(0, 2, ROWS, CompressionType.GZIP)
    data += message(1, 10, timestamp=NOW) + message(1, 11, timestamp=NOW + 1, attributes=8)
    data += message(1, 12, timestamp=NOW + 2, attributes=8) + wrapper(1, 13, ROWS, CompressionType.LZ4, [NOW] * 4)
    assert holds_messages(data + batch)
    assert holds_messages(batch + data)
    assert not holds_messages(batch + batch)
    rows = shown(data + batch + batch[:40])
    assert [row[0] for row in rows] == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 16, 30]
    assert rows[0] == (0, -1, 0, b"a", b"b")
    assert rows[6:9] == [
        (10, NOW, 0, b"key", b"value"),
        (11, NOW + 1, 1, b"key", b"value"),
        (12, NOW + 2, 1, b"key", b"value"),
    ]
    assert to_batches(batch) == batch


def test_offsets_far_apart_and_times_that_jump_stay_what_they_are() -> None:
    data = message(1, 1, timestamp=NOW) + message(1, 1 << 40, timestamp=-1) + message(1, (1 << 40) + 9, timestamp=5)
    assert [(row[0], row[1]) for row in shown(data)] == [(1, NOW), (1 << 40, -1), ((1 << 40) + 9, 5)]


def test_what_is_cut_off_is_left_out_and_what_is_damaged_names_its_offset() -> None:
    data = message(1, 4, timestamp=NOW) + message(1, 5, timestamp=NOW) + message(1, 6, timestamp=NOW)
    assert [row[0] for row in shown(data[:-1])] == [4, 5]
    damaged = bytearray(data)
    damaged[len(data) // 3 + 30] ^= 1
    batches = to_batches(damaged)
    (first, size), (bad, bad_size), (last, _) = split_batches(batches)
    assert [record.offset for record in decode_batch(batches, first, size)] == [4]
    with pytest.raises(CorruptBatch, match="offset 5"):
        decode_batch(batches, bad, bad_size)
    assert read_header(batches, last).base_offset == 6
    damaged[8] = 0xFF
    assert to_batches(damaged) == bytes(damaged)

"""Which batches may be appended, and with which error the others are refused."""

import cramjam
import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import HEADER_SIZE, read_header, verify_crc, write_crc
from kbroker.protocol.records.compression import CompressionType, compress
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.protocol.records.errors import UnpacksToMore
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.log_config import LogConfig
from kbroker.segment.validator import RecordErrors, validate
from tests.segment.batches import NOW, batch


def refused(data: bytearray, config: LogConfig | None = None) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        validate(data, config or LogConfig(), NOW)
    return caught.value


def test_a_good_batch_passes_untouched() -> None:
    data = batch(3)
    before = bytes(data)
    _, header, max_timestamp, append_time = validate(data, LogConfig(), NOW)
    assert (header.count, max_timestamp, append_time, bytes(data)) == (3, NOW + 2, -1, before)


def test_partial_bytes_behind_the_batch_are_cut_off() -> None:
    data = batch()
    size = len(data)
    assert len(validate(data + data[:30], LogConfig(), NOW)[0]) == size


@pytest.mark.parametrize("data", [bytearray(), bytearray(30), batch() + batch(), batch()[:-1]])
def test_anything_but_exactly_one_batch_is_refused(data: bytearray) -> None:
    assert refused(data).code is ErrorCode.INVALID_RECORD


def test_older_formats_are_refused() -> None:
    data = batch()
    data[16] = 1
    assert refused(data).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_a_magic_that_never_was_is_damage(magic: int) -> None:
    data = batch()
    data[16] = magic
    assert refused(data).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_compression_that_nobody_knows_is_refused(codec: int) -> None:
    data = batch()
    data[22] = codec
    write_crc(data, 0)
    assert refused(data).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_compressed_records_must_begin_as_their_codec_does(codec: CompressionType) -> None:
    data = batch()
    data[22] = codec
    write_crc(data, 0)
    assert refused(data).code is ErrorCode.INVALID_RECORD


COMPRESSED = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize(("says", "offsets"), [(99, 99), (201, 201), ((1 << 31) - 1, (1 << 31) - 1), (200, 201)])
def test_compressed_batches_hold_as_many_records_as_they_say(codec: CompressionType, says: int, offsets: int) -> None:
    data = batch(200, compression=codec)
    data[23:27], data[57:61] = (offsets - 1).to_bytes(4, "big"), says.to_bytes(4, "big")
    write_crc(data, 0)
    assert refused(data).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", COMPRESSED)
def test_garbage_behind_the_first_bytes_of_compressed_records_is_refused(codec: CompressionType) -> None:
    data = batch(200, compression=codec)
    for position in range(61 + 20, len(data)):
        data[position] = position * 7 & 0xFF
    write_crc(data, 0)
    assert refused(data).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("deltas", [(0, 0, 1), (0, 2, 1), (1, 2, 3), (0, 1, 1)])
def test_offsets_of_compressed_records_ascend_one_by_one(codec: CompressionType, deltas: tuple[int, ...]) -> None:
    records = b"".join(bytes([12, 0, 0, 2 * delta, 1, 1, 0]) for delta in deltas)
    data = batch(3)[:61] + compress(codec, records)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] = codec
    write_crc(data, 0)
    assert refused(data).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_largest_timestamp_of_a_compressed_batch_is_that_of_its_records(codec: CompressionType) -> None:
    data = batch(3, compression=codec)
    data[35:43] = (NOW + 10**9).to_bytes(8, "big")
    write_crc(data, 0)
    valid, _, max_timestamp, _ = validate(data, LogConfig(), NOW)
    assert (max_timestamp, read_header(valid).max_timestamp, verify_crc(valid, 0, len(valid))) == (
        NOW + 2,
        NOW + 2,
        True,
    )


@pytest.mark.parametrize("codec", COMPRESSED)
def test_no_more_is_unpacked_than_was_allowed(codec: CompressionType) -> None:
    data = batch(20, size=5000, compression=codec)
    before = bytes(data)
    with pytest.raises(UnpacksToMore):
        validate(data, LogConfig(), NOW, room=50_000)
    assert data == before
    assert validate(data, LogConfig(), NOW, room=150_000)[1].count == 20


@pytest.mark.parametrize("config", [LogConfig(cleanup_policy=("compact",)), LogConfig(compression_type="lz4")])
def test_damage_that_the_producer_put_its_checksum_on_is_not_to_be_sent_again(config: LogConfig) -> None:
    data = batch(200, compression=CompressionType.GZIP)
    data[100] ^= 0xFF
    write_crc(data, 0)
    assert refused(data, config).code is ErrorCode.INVALID_RECORD
    shorter = batch(200, compression=CompressionType.GZIP)
    shorter[23:27], shorter[57:61] = (99).to_bytes(4, "big"), (100).to_bytes(4, "big")
    write_crc(shorter, 0)
    assert refused(shorter, config).code is ErrorCode.INVALID_RECORD


def test_size_is_checked_before_the_checksum() -> None:
    data = batch(size=500)
    data[-1] ^= 1
    assert refused(data, LogConfig(max_message_bytes=100)).code is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(data).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("position", [21, 23, 30, 40, 57, 61, 70])
def test_a_flipped_bit_is_found(position: int) -> None:
    data = batch(3)
    data[position] ^= 4
    assert refused(data).code is ErrorCode.CORRUPT_MESSAGE


def test_clients_may_not_send_markers_or_sequences_below_zero() -> None:
    assert refused(control_batch(ControlType.COMMIT, 1, 0, 0, NOW)).code is ErrorCode.INVALID_RECORD
    assert refused(batch(producer_id=4, producer_epoch=0, base_sequence=-1)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize("target", ["producer", "snappy"])
def test_an_append_time_from_a_client_is_refused_where_the_broker_sets_it_else_ignored(
    compression: CompressionType, target: str
) -> None:
    stamped, as_sent = batch(3, compression=compression), batch(3, compression=compression)
    append_time = LogConfig(message_timestamp_type="LogAppendTime")
    validate(stamped, append_time, NOW + 99)
    assert refused(bytearray(stamped), append_time).code is ErrorCode.INVALID_TIMESTAMP
    config = LogConfig(compression_type=target)
    accepted, _, max_timestamp, append_time_ms = validate(stamped, config, NOW)
    assert (max_timestamp, append_time_ms) == (NOW + 2, -1)
    assert accepted == validate(as_sent, config, NOW)[0]


@pytest.mark.parametrize("linked", [False, True])
def test_lz4_frames_of_linked_blocks_are_refused_though_they_can_be_read(linked: bool) -> None:
    plain = batch(3)
    compressor = cramjam.lz4.Compressor(block_linked=linked)
    compressor.compress(bytes(plain[HEADER_SIZE:]))
    data = plain[:HEADER_SIZE] + bytes(compressor.finish())
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] |= CompressionType.LZ4
    write_crc(data, 0)
    assert decode_batch(data) == decode_batch(plain)
    if linked:
        assert "linked blocks" in refused(data).message
    else:
        validate(data, LogConfig(), NOW)


def test_a_base_offset_other_than_zero_is_refused() -> None:
    data = batch()
    data[7] = 1
    assert refused(data).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
def test_compacted_topics_want_keys_and_name_the_records_without(compression: CompressionType) -> None:
    config = LogConfig(cleanup_policy=("compact",))
    validate(batch(3, compression=compression), config, NOW)
    error = refused(batch(3, key=None, compression=compression), config)
    assert isinstance(error, RecordErrors)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [number for number, _ in error.record_errors] == [0, 1, 2]


@pytest.mark.parametrize("timestamp", [NOW - 1001, NOW + 501])
def test_timestamps_outside_of_the_limits_are_refused(timestamp: int) -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    validate(batch(timestamp=NOW - 1000), config, NOW)
    validate(batch(timestamp=NOW + 500), config, NOW)
    error = refused(batch(timestamp=timestamp), config)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert isinstance(error, RecordErrors)
    assert error.record_errors[0][0] == 0


def test_log_append_time_stamps_the_batch() -> None:
    data = batch(2, timestamp=5)
    _, _, max_timestamp, append_time = validate(data, LogConfig(message_timestamp_type="LogAppendTime"), NOW)
    assert (max_timestamp, append_time) == (NOW, NOW)
    assert [record.timestamp for record in decode_batch(data)] == [NOW, NOW]


@pytest.mark.parametrize("source", list(CompressionType))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_converted_to_the_topics_compression(source: CompressionType, target: str) -> None:
    data = batch(20, compression=source)
    records = decode_batch(data)
    converted = validate(data, LogConfig(compression_type=target), NOW)[0]
    header = read_header(converted)
    assert CompressionType(header.compression).name.lower() == target.replace("uncompressed", "none")
    assert verify_crc(converted, 0, len(converted))
    assert decode_batch(converted) == records


def test_a_converted_batch_must_not_be_too_large_either() -> None:
    data = batch(100, size=100, compression=CompressionType.ZSTD)
    config = LogConfig(compression_type="uncompressed", max_message_bytes=2000)
    assert refused(data, config).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_wrong_max_timestamp_is_put_right() -> None:
    from kbroker.protocol.records.batch import set_max_timestamp

    data = batch(3)
    set_max_timestamp(data, 0, NOW + 10_000)
    assert validate(data, LogConfig(), NOW)[2] == NOW + 2
    assert read_header(data).max_timestamp == NOW + 2

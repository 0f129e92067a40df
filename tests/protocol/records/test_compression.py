"""Every codec, there and back, and nothing beyond its bound."""

import os

import psutil
import pytest

from kbroker.protocol.records.compression import CompressionType, check_lz4_frame, compress, decompress
from kbroker.protocol.records.errors import CorruptBatch

CODECS = [codec for codec in CompressionType if codec]


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("data", [b"", b"a", b"hello " * 50_000, os.urandom(200_000)], ids=["0", "1", "text", "noise"])
def test_every_codec_gives_back_what_it_got(codec: CompressionType, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused(codec: CompressionType) -> None:
    bomb = bytes(compress(codec, bytes(5_000_000)))
    with pytest.raises(CorruptBatch):
        decompress(codec, bomb, 1_000_000)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("damage", [b"", b"\xff" * 40, b"\x82SNAPPY\x00" + b"\xff" * 20])
def test_damaged_data_is_refused(codec: CompressionType, damage: bytes) -> None:
    whole = bytes(compress(codec, b"some text " * 100))
    with pytest.raises(CorruptBatch):
        decompress(codec, damage or whole[:-3], 1 << 20)


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.ZSTD])
def test_streams_one_behind_the_other_are_read(codec: CompressionType) -> None:
    assert bytes(decompress(codec, bytes(compress(codec, b"one")) + bytes(compress(codec, b"two")))) == b"onetwo"


def test_lz4_frames_are_what_java_reads() -> None:
    assert bytes(compress(CompressionType.LZ4, b"a" * 100))[:7] == bytes.fromhex("04224d18604082")

    for level in (None, 1, 12):
        check_lz4_frame(compress(CompressionType.LZ4, b"a" * 200_000, level))


@pytest.mark.parametrize(
    ("at", "says"),
    [(4, 0x40), (4, 0x61), (4, 0x62), (4, 0xA0), (5, 0x30), (5, 0xC0), (5, 0x41), (0, 0x50)],
    ids=["linked", "dictionary", "reserved", "version", "block size", "size reserved", "reserved low", "skippable"],
)
def test_lz4_frames_that_java_does_not_read_are_told(at: int, says: int) -> None:
    frame = bytearray(compress(CompressionType.LZ4, b"a" * 100))
    check_lz4_frame(frame)
    frame[at] = says
    with pytest.raises(CorruptBatch):
        check_lz4_frame(frame)
    with pytest.raises(CorruptBatch):
        check_lz4_frame(frame[:6])


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.ZSTD])
def test_a_buffer_is_no_memory_before_it_is_filled(codec: CompressionType) -> None:
    size = 17 << 20
    data = bytes(compress(codec, bytes(size)))
    output = bytearray()
    before = psutil.Process().memory_info().rss
    assert len(decompress(codec, data, output=output)) == size
    grown = psutil.Process().memory_info().rss - before
    assert len(output) > 3 * size
    assert grown < 2 * size

"""The payload of a batch, compressed and decompressed, as Java's clients and librdkafka write and read it.

    gzip    one gzip stream (several members are read)
    snappy  xerial's stream: 82 'SNAPPY' 00, int32 version 1, int32 1, then int32 length + raw block, ...
            (one bare raw block is read too: librdkafka and others write it)
    lz4     one LZ4 frame of independent blocks of 64 KiB, no checksums but the header's: what Java can read
            (others are read too, but not taken from producers: check_lz4_frame)
    zstd    one frame (several are read)

Decompressing never writes, nor allocates, more than `max_size`: what a frame says about its size is not believed.
"""

import ctypes
from enum import IntEnum
from struct import Struct

import cramjam

from kbroker.protocol.records.errors import CorruptBatch, UnpacksToMore

MAX_PAYLOAD_SIZE = 256 << 20
"""Default bound of a decompressed payload."""

BytesLike = bytes | bytearray | memoryview

XERIAL_HEADER = bytes.fromhex("82534e4150505900") + bytes.fromhex("0000000100000001")
_XERIAL_MAGIC = XERIAL_HEADER[:8]
_XERIAL_BLOCK = 32 * 1024
_LZ4_HEADER = bytes.fromhex("04224d18604082")  # magic, version 1 + independent blocks, 64 KiB, header checksum
_LZ4_BLOCK = 64 * 1024
_LZ4_STORED = 0x80000000
_LZ4_FLAGS, _LZ4_FLAGS_WANTED = 0b1110_0011, 0b0110_0000
"""Version 1, independent blocks; two bits are reserved, one of which is that for a dictionary by now."""
_LZ4_SIZES, _LZ4_SIZES_WANTED = 0b1100_1111, 0b0100_0000
"""Blocks of the sizes 4 to 7 (64 KiB to 4 MiB); the other bits are reserved."""
_ZSTD_LEVEL = 3
_GZIP_LEVEL = 6
_OUT_OF_ROOM = "failed to write whole buffer"
"""What every codec says (the words are Rust's) when the buffer to write to is too small; all else means damage."""
_FIRST_GUESS = 64 * 1024
_GROWTH = 4
_INT32 = Struct(">i")
_UINT32_LITTLE = Struct("<I")
_resize = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_ssize_t)(("PyByteArray_Resize", ctypes.pythonapi))
"""A bytearray of another size, without a byte of it being written: all that Python's own ways of making room write
into 256 MiB is written while no other thread runs, and has to be memory."""


class CompressionType(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of_name(cls, name: str) -> "CompressionType":
        """The type called so in configurations ("none", "gzip", ...); ValueError for another name."""
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(member.name.lower() for member in cls)
            raise ValueError(f"unknown compression type {name!r}; known are {known}") from None


def compress(compression: int, data: BytesLike, level: int | None = None) -> BytesLike:
    """Compress a payload; `level` as the codec counts (gzip 1-9, lz4 1-12: high compression, zstd -7..22)."""
    if compression == CompressionType.NONE:
        return data
    if compression == CompressionType.GZIP:
        return memoryview(cramjam.gzip.compress(data, _GZIP_LEVEL if level is None else level))
    if compression == CompressionType.SNAPPY:
        return _compress_snappy(memoryview(data))
    if compression == CompressionType.LZ4:
        return _compress_lz4(memoryview(data), level)
    if compression == CompressionType.ZSTD:
        return memoryview(cramjam.zstd.compress(data, _ZSTD_LEVEL if level is None else level))
    raise ValueError(f"unknown compression type {compression}")


def decompress(
    compression: int, data: BytesLike, max_size: int = MAX_PAYLOAD_SIZE, output: bytearray | None = None
) -> BytesLike:
    """Decompress a payload of at most `max_size` bytes; UnpacksToMore when it is longer, CorruptBatch when damaged.

    `output` is a buffer to reuse: when given it may be grown, and the answer is a view of it, so the caller must be
    done with the last answer (and have dropped it).
    """
    if compression == CompressionType.NONE:
        if len(data) > max_size:
            raise UnpacksToMore(f"a payload of {len(data)} bytes, {max_size} are allowed")
        return data
    if len(data) == 0:
        return b""
    if output is None:
        output = bytearray()
    if compression == CompressionType.SNAPPY:
        return _decompress_snappy(memoryview(data), max_size, output)
    module = {
        CompressionType.GZIP: cramjam.gzip,
        CompressionType.LZ4: cramjam.lz4,
        CompressionType.ZSTD: cramjam.zstd,
    }.get(CompressionType(compression) if 0 <= compression <= 4 else CompressionType.NONE)
    if module is None:
        raise CorruptBatch(f"unknown compression type {compression}")
    _grow(output, min(max_size, max(len(data) * _GROWTH, _FIRST_GUESS)))
    while True:
        allowed = min(len(output), max_size)
        try:
            size = module.decompress_into(data, memoryview(output)[:allowed])
        except cramjam.DecompressionError as error:
            name = CompressionType(compression).name.lower()
            if _OUT_OF_ROOM not in str(error):
                raise CorruptBatch(f"{name} data of {len(data)} bytes are damaged: {error}") from None
            if allowed >= max_size:
                raise UnpacksToMore(f"{name} data of {len(data)} bytes unpack to more than {max_size}") from None
        else:
            return memoryview(output)[:size]
        _grow(output, min(max_size, allowed * _GROWTH))


def check_lz4_frame(data: BytesLike) -> None:
    """Raise CorruptBatch for a frame that Java's consumers would not get past, though others can read it (KIP-57)."""
    head = bytes(data[:6])
    if len(head) < 6 or head[:4] != _LZ4_HEADER[:4]:
        raise CorruptBatch("lz4 data begin with no frame that Java's clients can read")
    flags, sizes = head[4:]
    if flags & _LZ4_FLAGS != _LZ4_FLAGS_WANTED or sizes & _LZ4_SIZES != _LZ4_SIZES_WANTED:
        raise CorruptBatch(
            f"an lz4 frame with the flags {flags:#04x} and {sizes:#04x} is none that Java's clients can read: "
            "no linked blocks (block_linked=False in many libraries), no dictionary, version 1"
        )


def _grow(output: bytearray, size: int) -> None:
    """Make room for `size` bytes; what is in them is not said."""
    if len(output) < size:
        _resize(output, size)


def _compress_snappy(data: memoryview) -> bytes:
    parts = [XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_size: int, output: bytearray) -> BytesLike:
    if data[:8] != _XERIAL_MAGIC:
        size = _snappy_block(data, 0, max_size, output)
        return memoryview(output)[:size]
    position = 0
    size = 0
    while position < len(data):
        if data[position : position + 8] == _XERIAL_MAGIC and len(data) - position >= 16:
            position += 16  # the stream's header, or that of another stream written behind it
            continue
        if len(data) - position < 4:
            raise CorruptBatch("snappy stream ends inside a block's length")
        length = _INT32.unpack_from(data, position)[0]
        position += 4
        if length < 0 or length > len(data) - position:
            raise CorruptBatch(f"snappy block of {length} bytes with {len(data) - position} bytes left")
        size = _snappy_block(data[position : position + length], size, max_size, output)
        position += length
    return memoryview(output)[:size]


def _snappy_block(block: memoryview, size: int, max_size: int, output: bytearray) -> int:
    """Decompress a raw block to output[size:]; returns the new size."""
    try:
        length = cramjam.snappy.decompress_raw_len(block)
        # A snappy byte yields at most 64/3: a length beyond that is a lie, and nothing is allocated for it.
        if length > 22 * len(block):
            raise CorruptBatch(f"a snappy block of {len(block)} bytes says that it unpacks to {length}")
        if length > max_size - size:
            raise UnpacksToMore(f"snappy data unpack to more than {max_size} bytes")
        if len(output) < size + length:
            _grow(output, max(size + length, 2 * len(output)))
        written = cramjam.snappy.decompress_raw_into(block, memoryview(output)[size : size + length])
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"damaged snappy block: {error}") from None
    return size + int(written)


def _compress_lz4(data: memoryview, level: int | None) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK):
        chunk = data[start : start + _LZ4_BLOCK]
        if level is None:
            block = bytes(cramjam.lz4.compress_block(chunk, store_size=False))
        else:
            block = bytes(
                cramjam.lz4.compress_block(chunk, mode="high_compression", compression=level, store_size=False)
            )
        if len(block) < len(chunk):
            parts += (_UINT32_LITTLE.pack(len(block)), block)
        else:
            parts += (_UINT32_LITTLE.pack(len(chunk) | _LZ4_STORED), bytes(chunk))
    parts.append(bytes(4))
    return b"".join(parts)

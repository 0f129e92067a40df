"""Bytes at a position of a buffer, without a Python object for each: the lowest step of the record codec.

In two forms, like protocol/memory.py: `raw.pxd` holds the same functions in C, which the compiled modules inline, and
there an "address" is a pointer; interpreted modules call the ones below, and there it is the buffer itself. But for
those that make an address, none looks at lengths: whoever calls them has.
"""

from sys import byteorder

Readable = memoryview | bytes | bytearray
Writable = memoryview | bytearray


def address(view: memoryview) -> memoryview:
    """What bytes are read from; ValueError for a view of anything but bytes in a row."""
    if view.ndim != 1 or view.itemsize != 1 or not view.c_contiguous:
        raise ValueError("records lie in buffers of contiguous bytes")
    return view


def writable_address(view: memoryview) -> memoryview:
    """What bytes are written to; as `address`, and the buffer must not be read-only."""
    if view.readonly:
        raise ValueError("a buffer to write to is read-only")
    return address(view)


def bytes_address(value: bytes) -> bytes:
    """Where the bytes lie."""
    return value


def bytearray_address(value: bytearray) -> bytearray:
    """Where the bytes lie until the bytearray is resized."""
    return value


def aligned(view: memoryview, width: int) -> memoryview:
    """The view, or (compiled) a copy of it when its first byte is not at a multiple of `width`."""
    return view


def int32_address(view: memoryview) -> memoryview:
    """The numbers in an aligned view, in the machine's order."""
    return address(view)[: len(view) // 4 * 4].cast("i")


def int64_address(view: memoryview) -> memoryview:
    """The numbers in an aligned view, in the machine's order."""
    return address(view)[: len(view) // 8 * 8].cast("q")


def uint64_address(view: memoryview) -> memoryview:
    """The unsigned numbers in an aligned view, in the machine's order."""
    return address(view)[: len(view) // 8 * 8].cast("Q")


def load_word(data: Readable, position: int) -> int:
    """Eight bytes as an unsigned number, in the machine's order."""
    return int.from_bytes(data[position : position + 8], byteorder)


def release_gil() -> object:
    """Let other threads run (compiled); returns what `take_gil` wants. In between nothing of Python's is touched."""
    return None


def take_gil(state: object) -> None:
    """Go on as one Python thread among others."""


def copy(target: Writable, at: int, source: Readable, start: int, length: int) -> None:
    """target[at : at + length] = source[start : start + length]."""
    target[at : at + length] = source[start : start + length]


def resize(buffer: bytearray, size: int) -> None:
    """Make the bytearray longer (by bytes of any value) or shorter; BufferError while somebody looks into it."""
    if size > len(buffer):
        buffer += bytes(size - len(buffer))
    else:
        del buffer[size:]


def is_text(data: Readable, start: int, length: int) -> bool:
    """Whether the bytes are UTF-8."""
    try:
        str(data[start : start + length], "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def short_crc(data: Readable, start: int, end: int) -> int:
    """CRC-32C of data[start:end], or -1 where the library is the faster way (always so when interpreted)."""
    return -1


def varint_size(value: int) -> int:
    """Bytes of a zig-zag number."""
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest > 127:
        rest >>= 7
        size += 1
    return size


def put_varint(target: Writable, at: int, value: int) -> int:
    """Write a zig-zag number; returns the position behind it."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 127:
        target[at] = (rest & 127) | 128
        rest >>= 7
        at += 1
    target[at] = rest
    return at + 1


def varint(data: Readable, position: int, limit: int) -> int:
    """The zig-zag number of at most 5 bytes at `position`; -2^63 when it is longer or not there before `limit`."""
    return _number(data, position, limit, 28)


def varlong(data: Readable, position: int, limit: int) -> int:
    """The zig-zag number of at most 10 bytes at `position`; -2^63 when it is longer or not there before `limit`."""
    return _number(data, position, limit, 63)


def varint_end(data: Readable, position: int) -> int:
    """Where the number ends that `varint` or `varlong` has just read at `position`."""
    while data[position] > 127:
        position += 1
    return position + 1


def _number(data: Readable, position: int, limit: int, last_shift: int) -> int:
    value = 0
    shift = 0
    while position < limit:
        byte = data[position]
        position += 1
        if byte < 128:
            if shift == last_shift and byte > (15 if last_shift == 28 else 1):
                break
            value |= byte << shift
            return (value >> 1) ^ -(value & 1)
        if shift == last_shift:
            break
        value |= (byte & 127) << shift
        shift += 7
    return -(1 << 63)

"""Loads and stores at a position of a buffer, big-endian.

The lowest step of the codec, in two forms: `memory.pxd` holds the same functions in C, which the compiled modules
inline; interpreted modules call the ones below. Neither checks a position: `Reader` and `Writer` do, before they call.
"""

from struct import Struct

Readable = memoryview | bytes | bytearray

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_FLOAT64 = Struct(">d")


def readable(view: memoryview) -> memoryview:
    """Return what the load functions read from (in C: the address of the view's first byte)."""
    return view


def writable(buffer: bytearray) -> bytearray:
    """Return what the store functions write to (in C: the address of the first byte, until the buffer is resized)."""
    return buffer


def load_int16(data: Readable, position: int) -> int:
    """Return the signed 16-bit integer at a position."""
    value: int = _INT16.unpack_from(data, position)[0]
    return value


def load_int32(data: Readable, position: int) -> int:
    """Return the signed 32-bit integer at a position."""
    value: int = _INT32.unpack_from(data, position)[0]
    return value


def load_int64(data: Readable, position: int) -> int:
    """Return the signed 64-bit integer at a position."""
    value: int = _INT64.unpack_from(data, position)[0]
    return value


def load_float64(data: memoryview, position: int) -> float:
    """Return the double at a position."""
    value: float = _FLOAT64.unpack_from(data, position)[0]
    return value


def load_text(data: memoryview, position: int, end: int) -> str:
    """Return the UTF-8 text between two positions; raises UnicodeDecodeError."""
    return str(data[position:end], "utf-8")


def load_bytes(data: memoryview, position: int, end: int) -> bytes:
    """Return a copy of the bytes between two positions."""
    return bytes(data[position:end])


def store_int16(data: bytearray, position: int, value: int) -> None:
    """Write a signed 16-bit integer at a position."""
    _INT16.pack_into(data, position, value)


def store_int32(data: bytearray, position: int, value: int) -> None:
    """Write a signed 32-bit integer at a position."""
    _INT32.pack_into(data, position, value)


def store_int64(data: bytearray, position: int, value: int) -> None:
    """Write a signed 64-bit integer at a position; OverflowError for a larger one, as the compiled form has it."""
    data[position : position + 8] = value.to_bytes(8, "big", signed=True)


def store_float64(data: bytearray, position: int, value: float) -> None:
    """Write a double at a position."""
    _FLOAT64.pack_into(data, position, value)


def store_bytes(data: bytearray, position: int, value: bytes) -> None:
    """Write bytes at a position."""
    data[position : position + len(value)] = value

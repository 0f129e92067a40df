# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Kafka's primitive types: how each is named in a message, read from a buffer, written to one.

All integers are big-endian; UV is an unsigned LEB128 varint of 32 bits.

    type      fixed versions                flexible versions
    string    int16 length, UTF-8           UV length + 1, UTF-8      null: -1, or UV 0
    bytes     int32 length, bytes           UV length + 1, bytes      null: -1, or UV 0
    records   as bytes                      as bytes
    []X       int32 count, elements         UV count + 1, elements    null: -1, or UV 0
    uuid      16 bytes                      the same

A `Reader` never reads past its end, whatever the bytes say: each length is held against what remains before anything
is read or allocated, and the compiler's bounds checks are off for that reason.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar

from kbroker.protocol import memory
from kbroker.protocol.errors import AnswerTooLarge, ErrorCode, MalformedMessage, TooManyElements

BOOL = 1
INT8 = 2
INT16 = 3
INT32 = 4
INT64 = 5
FLOAT64 = 6
STRING = 7
BYTES = 8
RECORDS = 9
UUID = 10
ERROR = 11
STRUCT = 12

Bool: TypeAlias = Annotated[bool, BOOL]
Int8: TypeAlias = Annotated[int, INT8]
Int16: TypeAlias = Annotated[int, INT16]
Int32: TypeAlias = Annotated[int, INT32]
Int64: TypeAlias = Annotated[int, INT64]
Float64: TypeAlias = Annotated[float, FLOAT64]
Str: TypeAlias = Annotated[str, STRING]
NullableStr: TypeAlias = Annotated[str | None, STRING]
Bytes: TypeAlias = Annotated[bytes, BYTES]
NullableBytes: TypeAlias = Annotated[bytes | None, BYTES]
Records: TypeAlias = Annotated[Any, RECORDS]
"""Record batches, or None. Read: a memoryview over the frame, not a copy. Written: bytes-like, or a `SizedPart`."""
Uuid: TypeAlias = Annotated[bytes, UUID]
"""16 raw bytes."""
Error: TypeAlias = Annotated[ErrorCode, ERROR]

Element = TypeVar("Element")
Array: TypeAlias = Sequence[Element]
NullableArray: TypeAlias = Sequence[Element] | None

BytesLike = bytes | bytearray | memoryview


class SizedPart(Protocol):
    """Bytes that are somewhere else (in a file) and are sent from there: only their number is asked for."""

    @property
    def size(self) -> int:
        """How many bytes the part has."""


Part = BytesLike | SizedPart

ZERO_UUID = bytes(16)

NO_LIMIT = (1 << 62) - 1

LONGEST_STRING = 32_767
"""In bytes, also where the wire has room for more: what is longer could not be told to others."""

MOST_ANSWER_BYTES = 100_000_000
"""Of an answer, but for records: as much as librdkafka takes. Whoever wants more asks for less at a time."""

TEXT_PER_ELEMENT = 1024
"""So many bytes of text cost as much as an array's element."""

MOST_GROWTH = 4 << 20
"""By so many bytes a writer's buffer grows ahead of what is written: to make a hundred MiB at once takes 50 ms."""

SMALL_RECORDS = 1024
"""Bytes-like records up to this size are copied among the fields around them: cheaper than another part to send."""


def uuid_to_text(uuid: bytes) -> str:
    """Return Kafka's 22-character form: base64 with the URL alphabet, without padding."""
    if len(uuid) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(uuid)}")
    return urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> bytes:
    """Return the 16 bytes behind Kafka's 22-character form; raises ValueError."""
    if len(text) != 22:
        raise ValueError(f"a uuid's text has 22 characters: {text!r}")
    try:
        uuid = urlsafe_b64decode(text.encode("ascii") + b"==")
    except ValueError:
        raise ValueError(f"not a uuid in URL-safe base64: {text!r}") from None
    if len(uuid) != 16 or uuid_to_text(uuid) != text:
        raise ValueError(f"not a uuid in URL-safe base64: {text!r}")
    return uuid


class Reader:
    """Reads values one after the other; raises MalformedMessage where the bytes end too soon.

    `most_elements` bounds what a few bytes each can be blown up to: all arrays' elements and tagged fields together.
    Each TEXT_PER_ELEMENT bytes of a text count as another one.
    """

    def __init__(self, buffer: BytesLike, position: int = 0, most_elements: int = NO_LIMIT) -> None:
        view = memoryview(buffer)
        if view.itemsize != 1 or not view.c_contiguous:
            view = view.cast("B")
        if position < 0 or position > len(view):
            raise MalformedMessage(f"position {position} in a buffer of {len(view)} bytes")
        self.view = view
        self.data = memory.readable(view)
        self.position = position
        self.end = len(view)
        self.elements_left = most_elements

    def remaining(self) -> int:
        """Return how many bytes are left."""
        return self.end - self.position

    def advance(self, size: int) -> int:
        """Move over `size` bytes and return the position where they start: the one place that checks the end."""
        position = self.position
        if size < 0 or size > self.end - position:
            raise MalformedMessage(f"{size} bytes announced at position {position}, {self.end - position} are left")
        self.position = position + size
        return position

    def count_elements(self, count: int) -> None:
        """Take elements (of arrays, or tagged fields) off what this reader may still read."""
        self.elements_left -= count
        if self.elements_left < 0:
            raise TooManyElements(f"{-self.elements_left} elements more than are allowed at position {self.position}")

    def read_bool(self) -> bool:
        """Read one byte; anything but 0 is true."""
        position = self.advance(1)
        return self.data[position] != 0

    def read_int8(self) -> int:
        """Read a signed byte."""
        position = self.advance(1)
        value = self.data[position]
        return value - 256 if value > 127 else value

    def read_int16(self) -> int:
        """Read a signed 16-bit integer."""
        position = self.advance(2)
        return memory.load_int16(self.data, position)

    def read_int32(self) -> int:
        """Read a signed 32-bit integer."""
        position = self.advance(4)
        return memory.load_int32(self.data, position)

    def read_int32s(self, count: int) -> list[int]:
        """Read so many signed 32-bit integers."""
        if count > self.remaining():
            raise MalformedMessage(f"{count} integers announced, {self.remaining()} bytes are left")
        position = self.advance(4 * count)
        numbers = []
        for _index in range(count):
            numbers.append(memory.load_int32(self.data, position))
            position += 4
        return numbers

    def read_int64(self) -> int:
        """Read a signed 64-bit integer."""
        position = self.advance(8)
        return memory.load_int64(self.data, position)

    def read_float64(self) -> float:
        """Read a double."""
        position = self.advance(8)
        return memory.load_float64(self.data, position)

    def read_varint(self) -> int:
        """Read an unsigned varint of at most 32 bits."""
        value = 0
        shift = 0
        while shift < 35:
            position = self.advance(1)
            byte = self.data[position]
            value |= (byte & 127) << shift
            if byte < 128:
                if value > 0xFFFFFFFF:
                    break
                return value
            shift += 7
        raise MalformedMessage(f"a varint of more than 32 bits before position {self.position}")

    def read_text(self, length: int) -> str:
        """Read UTF-8 text of a known length."""
        position = self.advance(length)
        if length >= TEXT_PER_ELEMENT:
            self.count_elements(length // TEXT_PER_ELEMENT)
        try:
            return memory.load_text(self.data, position, position + length)
        except UnicodeDecodeError:
            raise MalformedMessage(f"text at position {position} is not UTF-8") from None

    def read_bytes(self, length: int) -> bytes:
        """Read a copy of the next bytes."""
        position = self.advance(length)
        return memory.load_bytes(self.data, position, position + length)

    def read_view(self, length: int) -> memoryview:
        """Read the next bytes as a view on the buffer."""
        position = self.advance(length)
        return self.view[position : position + length]


class Writer:
    """Writes values one after the other into one growing buffer; large records stay outside of it, uncopied.

    `most_elements` bounds how long that takes: all arrays' elements together, but those that are encoded already, and
    each TEXT_PER_ELEMENT bytes of a text.
    `most_bytes` bounds the buffer, and what `check_size` is asked about.
    """

    def __init__(self, capacity: int = 256, most_elements: int = NO_LIMIT, most_bytes: int = NO_LIMIT) -> None:
        self.buffer = bytearray(capacity)
        self.data = memory.writable(self.buffer)
        self.capacity = capacity
        self.position = 0
        self.outside: list[tuple[int, Part]] = []
        self.outside_size = 0
        self.elements_left = most_elements
        self.most_bytes = most_bytes

    def check_size(self) -> None:
        """Refuse to go on when there is too much, parts outside included: for writers whose parts are in memory."""
        if self.position + self.outside_size > self.most_bytes:
            raise AnswerTooLarge(self.most_bytes)

    def count_elements(self, count: int) -> None:
        """Take elements of arrays off what this writer may still write."""
        self.elements_left -= count
        if self.elements_left < 0:
            raise TooManyElements(f"{-self.elements_left} elements more than are to be written in one go")

    def reserve(self, size: int) -> int:
        """Make room for `size` bytes, move over them and return the position where they start."""
        position = self.position
        if size > self.capacity - position:
            if position + size > self.most_bytes:
                raise AnswerTooLarge(self.most_bytes)
            self.capacity = position + size + min(position + size, MOST_GROWTH)
            self.buffer.extend(bytes(self.capacity - len(self.buffer)))
            self.data = memory.writable(self.buffer)
        self.position = position + size
        return position

    def write_bool(self, value: bool) -> None:
        """Write one byte, 0 or 1."""
        position = self.reserve(1)
        self.data[position] = 1 if value else 0

    def write_int8(self, value: int) -> None:
        """Write a signed byte."""
        if value < -0x80 or value > 0x7F:
            raise OverflowError(f"{value} does not fit into int8")
        position = self.reserve(1)
        self.data[position] = value & 0xFF

    def write_int16(self, value: int) -> None:
        """Write a signed 16-bit integer."""
        if value < -0x8000 or value > 0x7FFF:
            raise OverflowError(f"{value} does not fit into int16")
        position = self.reserve(2)
        memory.store_int16(self.data, position, value)

    def write_int32(self, value: int) -> None:
        """Write a signed 32-bit integer."""
        if value < -0x80000000 or value > 0x7FFFFFFF:
            raise OverflowError(f"{value} does not fit into int32")
        position = self.reserve(4)
        memory.store_int32(self.data, position, value)

    def write_int64(self, value: int) -> None:
        """Write a signed 64-bit integer."""
        position = self.reserve(8)
        memory.store_int64(self.data, position, value)

    def write_float64(self, value: float) -> None:
        """Write a double."""
        position = self.reserve(8)
        memory.store_float64(self.data, position, value)

    def write_varint(self, value: int) -> None:
        """Write an unsigned varint of at most 32 bits."""
        if value < 0 or value > 0xFFFFFFFF:
            raise OverflowError(f"{value} does not fit into an unsigned varint of 32 bits")
        while value > 127:
            position = self.reserve(1)
            self.data[position] = (value & 127) | 128
            value >>= 7
        position = self.reserve(1)
        self.data[position] = value

    def write_text(self, text: bytes) -> None:
        """Write UTF-8 text without its length."""
        if len(text) >= TEXT_PER_ELEMENT:
            self.count_elements(len(text) // TEXT_PER_ELEMENT)
        self.write_raw(text)

    def write_raw(self, value: bytes) -> None:
        """Write bytes as they are, without a length."""
        position = self.reserve(len(value))
        memory.store_bytes(self.data, position, value)

    def write_records(self, value: Any) -> None:
        """Write record batches without their length: small ones are copied, others stay a part of their own."""
        size = size_of(value)
        if size <= SMALL_RECORDS and isinstance(value, (bytes, bytearray, memoryview)):
            self.write_raw(bytes(value))
        else:
            self.outside.append((self.position, value))
            self.outside_size += size

    def size(self) -> int:
        """Return how many bytes have been written, those outside included."""
        return self.position + self.outside_size

    def to_bytes(self) -> bytes:
        """Return everything as one piece; a part that is not bytes-like must have a method `read()`."""
        if not self.outside:
            return bytes(memoryview(self.buffer)[: self.position])
        pieces = [part if isinstance(part, (bytes, bytearray, memoryview)) else part.read() for part in self.parts()]  # type: ignore[attr-defined]
        return b"".join(pieces)

    def frame(self) -> list[Part]:
        """Return everything as pieces, the first four bytes now holding the size of what follows them."""
        memory.store_int32(self.data, 0, self.size() - 4)
        return self.parts()

    def parts(self) -> list[Part]:
        """Return everything as pieces to be sent in this order."""
        view = memoryview(self.buffer)
        parts: list[Part] = []
        start = 0
        for position, part in self.outside:
            if position > start:
                parts.append(view[start:position])
            parts.append(part)
            start = position
        if self.position > start:
            parts.append(view[start : self.position])
        return parts


def size_of(value: Any) -> int:
    """Return the number of bytes in records to be written: bytes-like, or an object with a `size`."""
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, memoryview):
        return value.nbytes
    if isinstance(value, bytearray):
        return len(value)
    size = value.size
    if not isinstance(size, int) or size < 0:
        raise ValueError(f"records of size {size!r}")
    return size

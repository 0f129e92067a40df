# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Plain commits out of pieces of __consumer_offsets: nearly all of its records, so nothing is made on the way.

    read     piece of the log -> the last value of each key, as bytes: most commits are replaced by later ones
    resolve  what is left     -> by group: (topic, partition) -> CommittedOffset, and -> offset of its record

The formats of keys and values are drawn in offsets_records.py. A batch that holds anything else (records of groups,
other versions, transactions, compression, damage) is left to whoever calls.
"""

from collections.abc import Sequence

from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.protocol import memory
from kbroker.protocol.grouping import Key
from kbroker.protocol.records import raw
from kbroker.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    verify_crc,
)
from kbroker.protocol.records.errors import InvalidRecord
from kbroker.protocol.records.reader import RecordReader

_KEY_VERSION = 1
_VALUE_VERSION = 3
_GROUP_START = 4
"""Of a key: behind its version and the group's length."""
_METADATA_START = 16
"""Of a value: behind version, offset, leader epoch and the metadata's length."""
_HEADER = HEADER_SIZE  # these again, as plain C numbers
_BEFORE_LENGTH = LOG_OVERHEAD
_NOT_PLAIN = COMPRESSION_MASK | TRANSACTIONAL_BIT | CONTROL_BIT
_MAGIC = MAGIC

Raw = tuple[bytes, tuple[bytes | None, int]]
"""A key; its value (None: the commit was removed) and the offset of the record."""


class CommitReader:
    """Of one partition."""

    __slots__ = ("commits", "next_offset", "odd", "places", "records", "topics")

    def __init__(self) -> None:
        self.commits: dict[bytes, tuple[bytes | None, int]] = {}
        """What `read` has found, by key."""
        self.records = 0
        self.next_offset = 0
        """Behind the last batch that `read` has taken."""
        self.places: dict[bytes, tuple[dict[Key, CommittedOffset], dict[Key, int]]] = {}
        """What `resolve` has made, by the group's UTF-8."""
        self.odd: list[Raw] = []
        """Removals, and what `resolve` could not read."""
        self.topics: dict[bytes, str] = {}

    def read(self, data: bytes, position: int, from_offset: int) -> int:
        """Take batches from a position on, but for those before an offset; returns where the first one begins that is
        not whole or not for us.
        """
        view = memoryview(data)
        address = raw.address(view)
        length = len(data)
        while length - position >= _HEADER:
            size = memory.load_int32(address, position + 8) + _BEFORE_LENGTH
            if size < _HEADER or size > length - position or address[position + 16] != _MAGIC:
                break
            if memory.load_int16(address, position + 21) & _NOT_PLAIN or not verify_crc(view, position, size):
                break
            next_offset = memory.load_int64(address, position) + memory.load_int32(address, position + 23) + 1
            if next_offset > from_offset and not self._take(view, address, position, position + size):
                break
            self.next_offset = next_offset
            position += size
        return position

    def _take(self, view: memoryview, data: memoryview, position: int, end: int) -> bool:
        """Take the commits of one batch; False when it holds anything else (then some of them may have been taken)."""
        base_offset = memory.load_int64(data, position)
        last_delta = memory.load_int32(data, position + 23)
        try:
            reader = RecordReader(view, position + _HEADER, end, memory.load_int32(data, position + 57), 0, last_delta)
            while reader.next_record():
                start = reader.key_start
                if reader.key_length < 2 or memory.load_int16(data, start) != _KEY_VERSION:
                    return False
                key = memory.load_bytes(data, start, start + reader.key_length)
                value = None
                if reader.value_length >= 0:
                    start = reader.value_start
                    if reader.value_length < 2 or memory.load_int16(data, start) != _VALUE_VERSION:
                        return False
                    value = memory.load_bytes(data, start, start + reader.value_length)
                self.commits[key] = (value, base_offset + reader.offset_delta)
        except InvalidRecord:
            return False
        self.records += reader.count
        return True

    def resolve(self, found: Sequence[Raw]) -> None:
        """Put some of `commits` into `places`, or where they are odd into `odd`."""
        for key, (value, record_offset) in found:
            if value is None or not self._resolve(key, value, record_offset):
                self.odd.append((key, (value, record_offset)))

    def _resolve(self, key: bytes, value: bytes, record_offset: int) -> bool:
        """Read one commit; False where a length or a text makes no sense."""
        size = len(key)
        if size < _GROUP_START:
            return False
        data = raw.bytes_address(key)
        group_end = _GROUP_START + memory.load_int16(data, 2)
        if group_end < _GROUP_START or group_end + 2 > size:
            return False
        topic_end = group_end + 2 + memory.load_int16(data, group_end)
        if topic_end < group_end + 2 or topic_end + 4 > size:
            return False
        topic = self._topic(key[group_end + 2 : topic_end])
        if topic is None:
            return False
        place = (topic, memory.load_int32(data, topic_end))
        size = len(value)
        if size < _METADATA_START:
            return False
        data = raw.bytes_address(value)
        end = _METADATA_START + memory.load_int16(data, 14)
        if end < _METADATA_START or end + 8 > size:
            return False
        metadata = "" if end == _METADATA_START else _text(value[_METADATA_START:end])
        if metadata is None:
            return False
        fields = (
            memory.load_int64(data, 2),
            memory.load_int32(data, 10),
            metadata,
            memory.load_int64(data, end),
            -1,
        )
        group = key[_GROUP_START:group_end]
        known = self.places.get(group)
        if known is None:
            if _text(group) is None:
                return False
            known = self.places[group] = ({}, {})
        # What the class itself does, with its arguments by name, takes three times as long.
        known[0][place] = tuple.__new__(CommittedOffset, fields)
        known[1][place] = record_offset
        return True

    def _topic(self, name: bytes) -> str | None:
        known = self.topics.get(name)
        if known is None:
            known = _text(name)
            if known is not None:
                self.topics[name] = known
        return known


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None

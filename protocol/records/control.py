"""Control batches (the markers that end transactions), and what a read_committed reader skips.

key    int16 version = 0, int16 type (0 ABORT, 1 COMMIT); readers accept longer keys
value  int16 version = 0, int32 coordinatorEpoch
"""

from collections.abc import Iterable
from enum import IntEnum
from heapq import heapify, heappop
from struct import Struct

from kbroker.protocol.records.batch import COMPRESSION_MASK, CRC_START, HEADER_SIZE, BatchHeader
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.errors import InvalidRecord
from kbroker.protocol.records.reader import BytesLike
from kbroker.protocol.records.record import decode_batch

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_USUAL_SIZE = HEADER_SIZE + 17
_USUAL = Struct(">h34xi5shhBhiB")
_USUAL_FRONT, _USUAL_VALUE_LENGTH = b"\x20\x00\x00\x00\x08", 12
"""Of a marker as all brokers write it, from the batch's attributes on: its count, 1; a record of 16 bytes, without
deltas; its key of 4 and its value of 6, no headers. Lengths are zigzag.
"""


class ControlType(IntEnum):
    """What a control record says; KRaft's own types are UNKNOWN here."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1


_USUAL_TYPES = {0: ControlType.ABORT, 1: ControlType.COMMIT}


def control_batch(
    control_type: ControlType,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The marker that ends the producer's transaction, as a batch of one record."""
    builder = BatchBuilder()
    builder.append(_KEY.pack(0, control_type), _VALUE.pack(0, coordinator_epoch), (), timestamp_ms)
    return builder.build(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def parse_control_key(key: bytes | None) -> ControlType:
    """The type a control record's key holds. Raises InvalidRecord when it is too short or of a version below 0."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord(f"a control record's key of {0 if key is None else len(key)} bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"a control record's key of version {version}")
    return ControlType(number) if number in (0, 1) else ControlType.UNKNOWN


def read_marker(buffer: BytesLike, position: int = 0, size: int = -1) -> tuple[ControlType, int]:
    """Type and coordinator epoch of the control batch at `position`; the epoch is -1 for unknown types."""
    if size == _USUAL_SIZE and len(buffer) - position >= size:
        usual = _USUAL.unpack_from(buffer, position + CRC_START)
        attributes, count, front, key_version, number, value_length, version, epoch, headers = usual
        if (
            count == 1
            and front == _USUAL_FRONT
            and value_length == _USUAL_VALUE_LENGTH
            and key_version == version == headers == attributes & COMPRESSION_MASK == 0
            and number in _USUAL_TYPES
        ):
            return _USUAL_TYPES[number], epoch
    records = decode_batch(buffer, position, size, check_crc=False)
    if len(records) != 1:
        raise InvalidRecord(f"a control batch of {len(records)} records")
    control_type = parse_control_key(records[0].key)
    if control_type is ControlType.UNKNOWN:
        return control_type, -1
    value = records[0].value
    if value is None or len(value) < _VALUE.size:
        raise InvalidRecord("a transaction marker without a coordinator epoch")
    version, epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"a transaction marker of version {version}")
    return control_type, epoch


class AbortedTransactions:
    """Tells, batch by batch in the order of offsets, what a read_committed reader does not see.

    Made from a Fetch answer's list of (producer id, first offset) for the batches of that answer.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        self._coming = [(first_offset, producer_id) for producer_id, first_offset in aborted]
        heapify(self._coming)
        self._producers: set[int] = set()

    def hides(self, header: BatchHeader, buffer: BytesLike, position: int) -> bool:
        """True for markers and for the data of aborted transactions; call it once for every batch."""
        last_offset = header.last_offset
        while self._coming and self._coming[0][0] <= last_offset:
            self._producers.add(heappop(self._coming)[1])
        if header.is_control:
            if header.producer_id in self._producers and read_marker(buffer, position)[0] is ControlType.ABORT:
                self._producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producers

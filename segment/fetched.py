"""Batches that a leader sent: are they whole, and do their offsets ascend? (Pure.)"""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import BatchHeader, verify_crc
from kbroker.protocol.records.message_set import has_header, read_any_header
from kbroker.segment.offset_index import MAX_RELATIVE_OFFSET

Lot = list[tuple[int, BatchHeader]]
"""(position, header) of batches that lie one behind the other."""


def check_fetched(view: memoryview, name: str) -> Lot:
    """The whole batches (or messages of old) at the front of what was fetched for `name`; a cut-off one is left out.

    Raises KafkaError CORRUPT_MESSAGE and OFFSET_OUT_OF_RANGE.
    """
    headers: Lot = []
    following = -1
    position = 0
    while has_header(view, position):
        header = read_any_header(view, position)
        if header.size > len(view) - position:
            break
        if not verify_crc(view, position, header.size):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"{name}: fetched batch at offset {header.base_offset} has a wrong CRC"
            )
        if header.last_offset_delta < 0:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"{name}: fetched batch at offset {header.base_offset} ends before it begins"
            )
        if header.base_offset < following:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{name}: fetched offset {header.base_offset} follows {following - 1}"
            )
        following = header.last_offset + 1
        headers.append((position, header))
        position += header.size
    return headers


def cut_into_lots(headers: Lot, max_bytes: int) -> Iterator[Lot]:
    """Cut what was fetched into runs that fit a segment each, by bytes (a larger batch goes alone) and by offsets."""
    lot: Lot = []
    size = 0
    for item in headers:
        header = item[1]
        if lot and (size + header.size > max_bytes or header.last_offset - lot[0][1].base_offset > MAX_RELATIVE_OFFSET):
            yield lot
            lot, size = [], 0
        lot.append(item)
        size += header.size
    yield lot

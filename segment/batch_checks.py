"""Whether batches that are read are what was written, by their checksums and by the offsets around them."""

from __future__ import annotations

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import verify_crc
from kbroker.protocol.records.message_set import has_header, read_any_header
from kbroker.segment.files import Buffer
from kbroker.segment.log_config import MAX_LONG


def check_batches(
    data: Buffer, floor: int, expected: int = -1, ceiling: int = MAX_LONG, limit: int | None = None
) -> tuple[int, str]:
    """Check the whole batches at the front of data: (bytes that are good, what is wrong behind them or "").

    A cut-off batch at the end is not wrong, nor one that reaches beyond `limit`: what lies behind that only confirms
    the batch before. `floor`: the smallest offset that may come; `expected`: the one that the first batch should hold,
    if known; `ceiling`: where the next segment begins, if there is one. Checksums do not cover base offsets: of two
    batches whose offsets do not ascend the one that left a gap before it (compaction leaves such) is the wrong one,
    else the second.
    """
    position, end, behind_gap = 0, len(data) if limit is None else limit, -1
    while has_header(data, position):
        try:
            header = read_any_header(data, position)
        except KafkaError as error:
            return position, error.message
        size = header.size
        is_whole = position + size <= end
        if is_whole and not verify_crc(data, position, size):
            return position, f"the batch at offset {header.base_offset} does not match its checksum"
        if header.base_offset < floor and (is_whole or behind_gap >= 0):
            wrong = position if behind_gap < 0 else behind_gap
            return wrong, f"offset {header.base_offset} follows {floor - 1}"
        if not is_whole:
            break
        if header.last_offset >= ceiling:
            return position, f"offset {header.last_offset} belongs into the next segment"
        behind_gap = position if header.base_offset > expected else -1
        floor = expected = header.last_offset + 1
        position += size
    return position, ""

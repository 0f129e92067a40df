# cython: annotation_typing=False
"""Whether the batches of an answer follow each other: no checksum covers where a batch says that it begins.

    asked for offset 20         15..24 | 25..29 | 33..40        gaps are fine: compaction makes them
    a base offset too large     15..24 | 1025..1029 | 30..32    overlaps what follows, or ends behind the partition
    a base offset too small     15..24 | 9..13 | 30..32         overlaps what is before, or leaves a gap where to begin

Of two that overlap the first is believed if it begins where the one before it ends. Per batch, never per record.
"""

from typing import NamedTuple

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.records.batch import HEADER_SIZE, read_header
from kbroker.protocol.records.reader import BytesLike

UNKNOWN = -1


class Succession(NamedTuple):
    """What can be read of an answer."""

    start: int
    """Bytes to pass over: a first batch that lies, where what was asked for stands behind it."""
    end: int
    """Up to where offsets make sense, else all."""
    next_offset: int
    """Behind the last whole batch of these."""
    epochs: list[tuple[int, int]]
    """(first offset, leader epoch) wherever the epoch changes."""
    problem: str = ""
    """What is wrong there."""
    resume_at: int = UNKNOWN
    """The first offset behind what is wrong, where that can be told."""


def look_through(records: BytesLike, offset: int, high_watermark: int = UNKNOWN) -> Succession:
    """See how far the answer to a Fetch from `offset` makes sense; a header that is none is left for the decoder.

    `high_watermark`: the answer's. Only a batch behind a gap is held against it, as others may have come since.
    """
    start = position = last_position = 0
    next_offset = last_offset = last_base = offset
    end = offset  # of the batch before, even if all of it lies before `offset`
    is_believed = True  # that one's base offset
    is_before = False  # and it lies before `offset`
    problem = ""
    epochs: list[tuple[int, int]] = []
    doubted: list[tuple[int, int, int]] = []  # the last ones, none of them believed: position, offset before, end
    length = len(records)
    try:
        while length - position >= HEADER_SIZE:
            header = read_header(records, position)
            if header.size > length - position:
                break
            base_offset = header.base_offset
            following = header.next_offset
            if not is_believed and not last_position and base_offset <= offset < following:
                start, epochs = position, []
            elif base_offset < end and position:
                problem = f"batches overlap: one ends at offset {end - 1}, the next one begins at {base_offset}"
                lying = [each for each in doubted if each[2] > base_offset]
                if lying:
                    last_position, last_offset, _ = lying[0]
                break
            if base_offset > next_offset and is_before:
                problem = f"behind a batch that ends at offset {end - 1} comes one that begins at {base_offset}"
                break
            is_believed = base_offset <= next_offset or start == position > 0
            if is_believed:
                doubted = []
            else:
                doubted.append((position, next_offset, following))
            is_before = following <= offset
            last_position, last_offset = position, next_offset
            last_base = base_offset
            end = following
            next_offset = max(offset, end)
            if not epochs or epochs[-1][1] != header.partition_leader_epoch:
                epochs.append((base_offset, header.partition_leader_epoch))
            position += header.size
    except KafkaError:
        return Succession(start, length, next_offset, epochs)
    if not (problem or is_believed) and 0 <= high_watermark < end:
        problem = f"a batch says that it begins at offset {last_base}, the partition ends at {high_watermark}"
    if problem:
        resume_at = _behind(records, position, next_offset if is_believed else last_offset)
        if not is_believed:
            position, next_offset = last_position, last_offset
            epochs = [each for each in epochs if each[0] < next_offset]
        return Succession(start, position, next_offset, epochs, problem, resume_at)
    if is_before:
        problem = f"only batches before it came, the last of them ends at offset {end - 1}"
        return Succession(0, 0, offset, [], problem)
    return Succession(start, length, next_offset, epochs)


def _behind(records: BytesLike, position: int, offset: int) -> int:
    """Return the least offset, not before `offset`, where a batch from `position` on says that it begins."""
    least = UNKNOWN
    try:
        while len(records) - position >= HEADER_SIZE:
            header = read_header(records, position)
            if header.base_offset >= offset and not 0 <= least <= header.base_offset:
                least = int(header.base_offset)
            position += header.size
    except KafkaError:
        pass
    return least

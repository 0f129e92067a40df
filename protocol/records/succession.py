# cython: annotation_typing=False
"""Whether the batches of an answer follow each other: no checksum covers where a batch says that it begins.

    asked for offset 20         15..24 | 25..29 | 33..40        gaps are fine: compaction makes them
    a base offset too large     15..24 | 1025..1029 | 30..32    overlaps what follows, or ends behind the partition
    a base offset too small     15..24 | 9..13 | 30..32         overlaps what is before, or leaves a gap where to begin

Of two that overlap the first is believed if it begins where the one before it ends; of those behind a gap the ones
that end behind where what follows begins, or behind the partition, are not. Per batch, never per record.
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
    start = position = doubtful_at = 0
    next_offset = offset
    believed_to = offset  # where the first batch whose base offset is not believed would begin, had it no gap before it
    end = offset  # of the batch before, even if all of it lies before `offset`
    is_believed = True  # that one's base offset; if not, none is from `doubtful_at` on
    is_before = False  # and it lies before `offset`
    problem = ""
    epochs: list[tuple[int, int]] = []
    length = len(records)
    try:
        while length - position >= HEADER_SIZE:
            header = read_header(records, position)
            base_offset = header.base_offset
            following = header.next_offset
            is_whole = header.size <= length - position
            if is_whole and not (is_believed or doubtful_at) and base_offset <= offset < following:
                start, epochs, is_believed = position, [], True
            elif base_offset < end and position:
                problem = f"batches overlap: one ends at offset {end - 1}, the next one begins at {base_offset}"
                break
            elif not is_whole:
                break
            elif base_offset <= next_offset:
                is_believed = True
            elif is_before:
                problem = f"behind a batch that ends at offset {end - 1} comes one that begins at {base_offset}"
                break
            elif is_believed:
                is_believed, doubtful_at, believed_to = False, position, next_offset
            is_before = following <= offset
            end = following
            next_offset = max(offset, end)
            if not epochs or epochs[-1][1] != header.partition_leader_epoch:
                epochs.append((base_offset, header.partition_leader_epoch))
            position += header.size
    except KafkaError:
        return Succession(start, length, next_offset, epochs)
    resume_at = UNKNOWN
    if problem or (not is_believed and 0 <= high_watermark < end):
        resume_at = _behind(records, position, next_offset if is_believed else believed_to)
        if 0 <= high_watermark <= resume_at:
            resume_at = UNKNOWN  # that one lies, too
    if not is_believed:
        limit = resume_at if resume_at >= 0 else high_watermark
        if 0 <= limit < end:
            position, next_offset, last_base = _first_beyond(records, doubtful_at, believed_to, limit)
            epochs = [each for each in epochs if each[0] < next_offset]
            problem = problem or (
                f"a batch says that it begins at offset {last_base}, the partition ends at {high_watermark}"
            )
    if problem:
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


def _first_beyond(records: BytesLike, position: int, offset: int, limit: int) -> tuple[int, int, int]:
    """Return the position of the first batch that ends behind `limit`, the offset before it, and its own."""
    header = read_header(records, position)
    while header.next_offset <= limit:
        position, offset = position + header.size, int(header.next_offset)
        header = read_header(records, position)
    return position, offset, int(header.base_offset)

"""Copy a log into another directory while it is in use, and let the copy take its place.

    dir-a/orders-3/                     the current log; written, read and truncated as ever
    dir-b/orders-3.<32 hex>-future/     the copy: batches as they are, appended in portions
    finish_copy                         the last portion under the current log's lock, then, still under it:
                                        dir-b/…-future -> dir-b/orders-3, dir-a/orders-3 -> dir-a/….<32 hex>-delete

The `Log` object stays the same for all who hold it: only what lies below it is exchanged. The current log may have been
truncated, or restarted elsewhere, at any moment of the copying: each portion begins by cutting the copy back to what
both have in common, found by leader epochs as between replicas. All of this is for worker threads.
"""

from __future__ import annotations

import logging

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.segment import names
from kbroker.segment.log import Log
from kbroker.segment.log_config import MAX_LONG

log = logging.getLogger(__name__)

FINAL_BYTES = 256 << 10
"""The most that is copied while the current log takes no appends."""


def copy_portion(current: Log, future: Log, max_bytes: int) -> int:
    """Copy what follows next, at most `max_bytes` (but one batch); return the bytes copied, fewer only at the end.

    Raises KafkaError CORRUPT_MESSAGE for a damaged batch, KAFKA_STORAGE_ERROR when a directory fails.
    """
    align(current, future)
    copied = 0
    while copied < max_bytes and (data := _read(current, future.log_end_offset, max_bytes - copied)):
        future.append_as_follower(data)
        copied += len(data)
    future.update_log_start_offset(current.log_start_offset)
    future.update_high_watermark(current.high_watermark)
    return copied


def _read(current: Log, offset: int, max_bytes: int) -> bytes:
    """The next batches of one segment; at least one whole batch, empty at the end."""
    records = current.read(offset, max_bytes)
    try:
        return records.read()
    except OSError as error:
        current.fail(error, "read")


def align(current: Log, future: Log) -> None:
    """Cut from the copy what the current log does not have (any more)."""
    if future.log_end_offset < current.log_start_offset:
        future.truncate_fully_and_start_at(current.log_start_offset)
        return
    while future.latest_epoch >= 0:
        epoch, end_offset = current.offset_for_leader_epoch(future.latest_epoch)
        if epoch == future.latest_epoch:
            _cut(future, end_offset)
            return
        _cut(future, future.leader_epochs.entries[-1][1])
    _cut(future, current.log_end_offset)


def _cut(future: Log, offset: int) -> None:
    """Drop what lies at and above the offset, and every epoch that begins there."""
    if offset < future.log_start_offset:
        future.truncate_fully_and_start_at(offset)
    else:
        future.truncate_to(offset)


def finish_copy(current: Log, future: Log) -> bool:
    """Let the copy take the current log's place; False when more than a little is missing.

    Afterwards `future` holds what the current log was, its folder marked for deletion. Nothing that was on disk is less
    so afterwards, as far as the topic asks for flushes.
    """
    with current.changing("move"):
        copy_portion(current, future, FINAL_BYTES)
        if future.log_end_offset != current.log_end_offset:
            return False
        if current.config.flush_messages < MAX_LONG and future.disk.flushed_to < current.disk.flushed_to:
            future.flush()
        # On disk before the other loses its name: of two names that are not, a power loss may take the wrong one.
        future.rename_folder(f"{future.log_dir}/{names.folder_name(current.topic, current.partition)}", sync=True)
        clean_up_to = _clean_part_of_copy(current, future)
        current.exchange(future)
        current.first_dirty_offset = clean_up_to
        try:
            marked = names.marked_folder_name(current.topic, current.partition, "delete")
            future.rename_folder(f"{future.log_dir}/{marked}", sync=True)  # before anything more is appended
        except KafkaError as error:
            log.warning("%s; what it moved from stays behind: remove that folder before the next start", error.message)
        return True


def _clean_part_of_copy(current: Log, future: Log) -> int | None:
    """What was copied before a compaction is dirty still; the copy's segments begin at offsets of their own."""
    mine, theirs = current.first_dirty_offset, future.first_dirty_offset
    if mine is None or theirs is None:
        return None
    starts = [each.base_offset for each in future.segments]
    return max((start for start in starts if start <= min(mine, theirs)), default=starts[0])


def is_part_of(one: Log, other: Log) -> bool:
    """Whether a log has nothing that another has not, as far as topic, epochs and ends can tell.

    What has the same leader epoch was written by the same leader. A log whose id did not reach the disk may be any.
    """
    if ZERO_UUID not in (one.topic_id, other.topic_id) and one.topic_id != other.topic_id:
        return False
    if one.latest_epoch < 0:
        return not one.size or (one.latest_epoch, one.log_end_offset) == (other.latest_epoch, other.log_end_offset)
    epoch, end_offset = other.offset_for_leader_epoch(one.latest_epoch)
    return epoch == one.latest_epoch and one.log_end_offset <= end_offset

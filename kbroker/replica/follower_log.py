"""What a follower does to its log: append what the leader sent, cut what the leader does not have.

Where two logs diverge (KIP-101, KIP-279): the leader names the largest of its epochs that is not above the follower's
last one, and where that epoch ended. The follower cuts there, or where its own records of that epoch end if that is
lower; when it does not have that epoch it cuts to the end of its next lower one, and the next fetch asks again.
"""

from __future__ import annotations

import logging

from kbroker.protocol.messages.fetch import FetchResponse
from kbroker.replica.hosted import HostedPartition
from kbroker.segment.log import Log

logger = logging.getLogger(__name__)


def follow(hosted: HostedPartition, data: FetchResponse.PartitionData, now_ms: int) -> None:
    """Do to the log what the leader's answer asks for; it is on disk where flush.messages wants that. Blocks.

    Raises KafkaError CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE or KAFKA_STORAGE_ERROR.
    """
    log = hosted.log
    if data.diverging_epoch.epoch >= 0:
        offset = truncation_offset(log, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        cut_to_leaders(log, offset, data.log_start_offset, now_ms)
        return
    if data.records:
        log.append_as_follower(data.records, now_ms)
        if hosted.needs_flush():
            log.flush()


def truncation_offset(log: Log, epoch: int, end_offset: int) -> int:
    """Return where to cut a log whose leader says that `epoch` is the last they may share, and ended there."""
    own_epoch, own_end_offset = log.offset_for_leader_epoch(epoch)
    if own_end_offset < 0:  # nothing is known of so low an epoch
        return min(end_offset, log.log_end_offset)
    if own_epoch != epoch:
        return min(own_end_offset, log.log_end_offset)
    return min(own_end_offset, end_offset, log.log_end_offset)


def cut_to_leaders(log: Log, offset: int, leader_start_offset: int, now_ms: int) -> None:
    """Cut where the leader's log ends or ours parts from it.

    A log that begins there, or beyond, has nothing of what the leader has below: it begins anew where the leader's
    begins, and is short until it is filled. Cut to an empty one there it would be in sync, and might be elected.
    """
    has_some = offset > log.log_start_offset
    if has_some or (offset == log.log_start_offset <= leader_start_offset):
        log.truncate_to(offset, now_ms)
        return
    text = "%s: it begins at %d, and its leader's goes with it up to %d: beginning anew at %d"
    logger.warning(text, log.name, log.log_start_offset, offset, leader_start_offset)
    if leader_start_offset < offset:
        _has_promised(log, offset)
    log.truncate_fully_and_start_at(leader_start_offset)


def cut_damaged(log: Log, offset: int, now_ms: int) -> None:
    """Cut what says what cannot be; a log that lacks committed records by that is short until it is filled again."""
    if offset < log.high_watermark:
        _has_promised(log, log.high_watermark)
    log.truncate_to(offset, now_ms)


def _has_promised(log: Log, offset: int) -> None:
    with log.changing("truncate"):
        log.promised_offset = max(log.promised_offset, offset)


def lacks_nothing(log: Log) -> None:
    """The log has all that its leader counts as committed: what else lay behind damage was never committed."""
    log.check_usable()
    text = "%s: its leader has committed nothing beyond %d: what was there up to %d need not come back"
    logger.info(text, log.name, log.log_end_offset, log.promised_offset)
    log.promised_offset = 0


def settle(hosted: HostedPartition, high_watermark: int, log_start_offset: int) -> None:
    """Take over what the leader says of the partition's offsets, and wake who waits here. On the loop."""
    log = hosted.log
    if log_start_offset > log.log_start_offset and log.update_log_start_offset(log_start_offset):
        hosted.changed()
    if hosted.state.follower_log_changed(log.log_end_offset, high_watermark, log.log_start_offset):
        hosted.high_watermark_moved()

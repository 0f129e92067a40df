"""Reads a partition of __transaction_state into transactional ids: what a new coordinator does first. Blocking.

Later records replace earlier ones, so values are only read when the last of each is known. A record that cannot be
read is told in the log with its offset and left out.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

from kbroker.coordinator.log_pieces import header_at, read_pieces
from kbroker.coordinator.transaction import Transaction
from kbroker.coordinator.transaction_records import read_transaction_key, read_transaction_value
from kbroker.protocol.errors import KafkaError, MalformedMessage
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.log import Log

log = logging.getLogger(__name__)

READ_PER_FREEZE = 10_000
"""What is made stays: the garbage collector need not look at all of it again and again."""

Raw = dict[bytes, tuple[bytes, int]]
"""key -> last value, and the offset of its record"""


def load_transactions(
    partition_log: Log, buffer_bytes: int, is_wanted: Callable[[], bool] = lambda: True
) -> dict[str, Transaction]:
    """Read the whole log; stops early when `is_wanted` no longer holds. Raises KafkaError when the disk fails."""
    found: Raw = {}
    read_pieces(partition_log, buffer_bytes, is_wanted, lambda data, offset: _take(found, data, offset, partition_log))
    transactions: dict[str, Transaction] = {}
    for number, (key, (value, offset)) in enumerate(found.items(), 1):
        try:
            transactional_id = read_transaction_key(key)
            if transactional_id is not None:
                transactions[transactional_id] = Transaction(transactional_id, read_transaction_value(value))
        except MalformedMessage as error:
            log.error("%s: the record at offset %d is left out: %s", partition_log.name, offset, error)
        if number % READ_PER_FREEZE == 0:
            gc.freeze()
    return transactions


def _take(found: Raw, data: bytes, offset: int, partition_log: Log) -> int:
    """Take the batches from an offset on; returns the offset behind the last whole one."""
    position = 0
    while (header := header_at(data, position, partition_log)) is not None:
        if header.last_offset >= offset:
            if not header.is_control:
                _take_batch(found, data, position, header.size, partition_log)
            offset = header.last_offset + 1
        position += header.size
    return offset


def _take_batch(found: Raw, data: bytes, position: int, size: int, partition_log: Log) -> None:
    try:
        records = decode_batch(data, position, size)
    except (CorruptBatch, InvalidRecord, KafkaError) as error:
        log.error("%s: a batch of transactions is left out: %s", partition_log.name, error)
        return
    for record in records:
        key, value = record.key, record.value
        if key is None:
            log.error("%s: the record at offset %d has no key", partition_log.name, record.offset)
        elif value is None:
            found.pop(key, None)
        else:
            found[key] = (value, record.offset)

"""What to do with a batch that a broker has refused, as Java's producer decides it: values in, values out."""

from __future__ import annotations

from enum import Enum, auto

from kbroker.client.delivery import Batch
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.batch import read_header
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.record import decode_batch


class Remedy(Enum):
    """What may help."""

    NONE = auto()
    """It is given up."""
    SPLIT = auto()
    """Two smaller ones are sent instead."""
    AGAIN = auto()
    """The same bytes after a pause: where the broker has them already, it says so."""
    AGAIN_IN_NEW_EPOCH = auto()
    """The broker lacks something before it: it was not written, and goes on in the producer's present epoch."""
    RAISE_EPOCH = auto()
    """The broker does not know what it acknowledged: a new epoch begins, and with it the sequence numbers."""


def remedy_for(
    code: ErrorCode, *, records: int, is_first: bool, is_of_current_epoch: bool, is_transactional: bool = False
) -> Remedy:
    """Say what helps a batch of so many records, with all that was sent before it acknowledged or not (`is_first`).

    In a transaction no new epoch can begin: the coordinator raises it, and only between two of them.
    """
    if code is ErrorCode.MESSAGE_TOO_LARGE and records > 1:
        return Remedy.SPLIT
    if is_transactional:
        waits_for_others = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_first
        return Remedy.AGAIN if code.retriable or waits_for_others else Remedy.NONE
    if code is ErrorCode.UNKNOWN_PRODUCER_ID:
        return Remedy.RAISE_EPOCH if is_of_current_epoch else Remedy.AGAIN_IN_NEW_EPOCH
    if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        if not is_of_current_epoch:
            return Remedy.AGAIN_IN_NEW_EPOCH
        return Remedy.RAISE_EPOCH if is_first else Remedy.AGAIN
    return Remedy.AGAIN if code.retriable else Remedy.NONE


def ends_identity(code: ErrorCode | None) -> bool:
    """Whether brokers take nothing more from this producer id and epoch."""
    return code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def halves_of(batch: Batch, level: int | None) -> list[Batch]:
    """Split a batch that the broker finds too large in two, each with its part of the sequence numbers."""
    assert batch.data is not None
    header = read_header(batch.data, 0)
    records = decode_batch(batch.data)
    middle = len(records) // 2
    halves = []
    for start, some in ((0, records[:middle]), (middle, records[middle:])):
        builder = BatchBuilder(len(batch.data) + batch.size, header.compression, level)
        for record in some:
            builder.append(record.key, record.value, record.headers, record.timestamp)
        half = Batch(batch.topic, batch.partition, None, batch.created, batch.deadline)
        half.attempts = batch.attempts
        half.count = len(some)
        half.size = batch.size * len(some) // len(records)
        if batch.base_sequence >= 0:
            half.base_sequence = (batch.base_sequence + start) & 0x7FFFFFFF
        half.data = builder.build(
            header.producer_id, header.producer_epoch, half.base_sequence, header.is_transactional
        )
        halves.append(half)
    halves[1].size = batch.size - halves[0].size
    batch.split_into(halves)
    return halves

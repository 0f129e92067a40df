"""What a transactional producer asks its coordinators, and what their answers mean: values in, values out.

A refusal is one of three. AGAIN: the same request after a pause. ABORT: this transaction can only be aborted, the next
one may succeed. ANEW: somebody else goes on under this transactional id, or it is not this client's: nothing succeeds
any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Any

from kbroker.client.errors import BrokerError, error_for
from kbroker.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.grouping import by_topic
from kbroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)

NEWEST_ADD_PARTITIONS = 3
"""Later versions are for brokers."""
NEWEST_PRODUCE, NEWEST_OFFSET_COMMIT, NEWEST_END = 11, 4, 4
"""Where several transactions have the same epoch; later versions mean that each has its own (KIP-890)."""
TRANSACTION_VERSION, EPOCH_EACH = "transaction.version", 2
"""The feature, and its level from which on each transaction has an epoch of its own."""
IdAndEpoch = tuple[int, int]

FENCING = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""From a coordinator: this producer's epoch is not the newest of its transactional id."""
OF_NEWER_EPOCH = FENCING - {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
"""From a partition's leader: it has seen a newer epoch of this producer's id."""
FINAL = FENCING | {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE}
OF_NO_PARTITION = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Another partition's error is the reason."""


class Verdict(Enum):
    """What a refusal asks for."""

    AGAIN = auto()
    ABORT = auto()
    ANEW = auto()


def verdict_on(code: ErrorCode) -> Verdict:
    """Say what a coordinator's refusal asks for."""
    if code in FINAL:
        return Verdict.ANEW
    return Verdict.AGAIN if code.retriable else Verdict.ABORT


def add_partitions(transactional_id: str, identity: IdAndEpoch, keys: Iterable[TopicPartition]) -> Any:
    """AddPartitionsToTxn as clients send it."""
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity[0],
        v3_and_below_producer_epoch=identity[1],
        v3_and_below_topics=[topic(name=name, partitions=indexes) for name, indexes in by_topic(keys).items()],
    )


def refused_partitions(answer: Any) -> BrokerError | None:
    """Return the error of an AddPartitionsToTxn or a TxnOffsetCommit, the gravest first, None when all were taken."""
    errors: list[BrokerError] = []
    if hasattr(answer, "results_by_topic_v3_and_below"):
        for topic in answer.results_by_topic_v3_and_below:
            for item in topic.results_by_partition:
                errors += _errors(item.partition_error_code, topic.name, item.partition_index)
    else:
        for topic in answer.topics:
            for item in topic.partitions:
                errors += _errors(item.error_code, topic.name, item.partition_index)
    graveness = {Verdict.ANEW: 0, Verdict.ABORT: 1, Verdict.AGAIN: 2}
    errors.sort(key=lambda error: (error.code in OF_NO_PARTITION, graveness[verdict_on(error.code)]))
    return errors[0] if errors else None


def _errors(code: ErrorCode, topic: str, partition: int) -> list[BrokerError]:
    return [] if code is ErrorCode.NONE else [error_for(code, topic=topic, partition=partition)]


def refused(answer: Any) -> BrokerError | None:
    """Return the error of an answer that has one for all."""
    return None if answer.error_code is ErrorCode.NONE else error_for(answer.error_code)


def add_offsets(transactional_id: str, identity: IdAndEpoch, group_id: str) -> AddOffsetsToTxnRequest:
    """AddOffsetsToTxn: the group's partition of the offsets topic is in the transaction too."""
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=identity[0], producer_epoch=identity[1], group_id=group_id
    )


def offset_commit(
    transactional_id: str, identity: IdAndEpoch, group: GroupMetadata, offsets: Mapping[TopicPartition, Any]
) -> TxnOffsetCommitRequest:
    """TxnOffsetCommit by a member of the group (KIP-447), or by nobody."""
    topics = []
    for name, indexes in by_topic(offsets).items():
        entries = []
        for index in indexes:
            wanted: OffsetAndMetadata = offsets[TopicPartition(name, index)]
            entries.append(
                TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=wanted.offset,
                    committed_leader_epoch=wanted.leader_epoch,
                    committed_metadata=wanted.metadata,
                )
            )
        topics.append(TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=name, partitions=entries))
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity[0],
        producer_epoch=identity[1],
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=topics,
    )


def end(transactional_id: str, identity: IdAndEpoch, committed: bool) -> EndTxnRequest:
    """EndTxn: idempotent for the transaction that was open last."""
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=identity[0], producer_epoch=identity[1], committed=committed
    )

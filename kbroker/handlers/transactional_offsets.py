"""TxnOffsetCommit: a group's offsets as part of a producer's transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Generator

from kbroker.cluster.transaction_verifier import Transaction
from kbroker.coordinator.group_offsets import CommittedOffset
from kbroker.handlers.committed_offsets import gather_offsets
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import READ, WRITE, on_group, on_topics, on_transactional_id
from kbroker.handlers.registry import handles
from kbroker.protocol.codec import ElementWriter
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kbroker.replica.turns import in_turns
from kbroker.replica.verification import spoken

FIRST_LOADING_VERSION = 2
"""Older clients do not know COORDINATOR_LOAD_IN_PROGRESS here."""
FIRST_ABORTABLE_VERSION = 4
FIRST_ADDING_VERSION = 5
"""It lets the group take part in the transaction (KIP-890, part 2)."""
NO_EXPIRY = -1

Work = Generator[None, None, TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]]


@handles(TxnOffsetCommitRequest, on_transactional_id(WRITE), on_group(READ), on_topics(READ))
def txn_offset_commit(
    services: Services, ctx: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    """Write offsets that count when the transaction is committed; each partition has its own error."""
    return in_turns(_commit(services, ctx, request))


def _commit(services: Services, ctx: RequestContext, request: TxnOffsetCommitRequest) -> Work:
    offsets, refused = yield from gather_offsets(services, request.topics, ctx.received_at, NO_EXPIRY)
    if all(code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for code in refused.values()) and not offsets:
        return (yield from _answer(request, ctx.api_version, ErrorCode.NONE, refused))
    return _commit_and_answer(services, ctx, request, offsets, refused)


async def _commit_and_answer(
    services: Services,
    ctx: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: list[tuple[Key, CommittedOffset]],
    refused: dict[Key, ErrorCode],
) -> TxnOffsetCommitResponse:
    version = ctx.api_version
    try:
        error = await services.groups.commit_in_transaction(
            Transaction(request.transactional_id, request.producer_id, request.producer_epoch),
            request.group_id,
            (request.member_id, request.group_instance_id, request.generation_id),
            offsets,
            adds=version >= FIRST_ADDING_VERSION,
        )
    except KafkaError as refusal:  # about the transaction or the member, so about all partitions there are
        error = spoken(refusal.code, knows_abortable=version >= FIRST_ABORTABLE_VERSION)
        refused = {key: code for key, code in refused.items() if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_LOADING_VERSION:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = in_turns(_answer(request, version, error, refused))
    return await answer if isinstance(answer, Awaitable) else answer


def _answer(
    request: TxnOffsetCommitRequest, version: int, error: ErrorCode, refused: dict[Key, ErrorCode]
) -> Generator[None, None, TxnOffsetCommitResponse]:
    topics = []
    for topic in request.topics:
        yield
        answers = ElementWriter(TxnOffsetCommitResponse, version)
        for partition in topic.partitions:
            index = partition.partition_index
            answers.append(
                TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                    partition_index=index, error_code=refused.get((topic.name, index), error)
                )
            )
            yield
        topics.append(TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers.array()))
    return TxnOffsetCommitResponse(topics=topics)

"""Produce: append record batches and answer when they count."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterator, Sequence
from struct import Struct
from typing import Any

from kbroker.cluster.topic_names import INTERNAL_TOPICS
from kbroker.cluster.transaction_verifier import Transaction
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import WRITE, Asked, on_topics, on_transactional_id, when
from kbroker.handlers.registry import CloseConnection, handles
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from kbroker.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
)
from kbroker.protocol.records.compression import CompressionType
from kbroker.replica.appending import Outcome
from kbroker.replica.delayed import DelayedAnswer
from kbroker.replica.turns import at_once, finished, in_turns, portions
from kbroker.replica.verification import APPENDED_AT_ONCE, MOST_AT_ONCE, ProducedTransaction
from kbroker.segment.validator import RecordErrors

ADMIN_CLIENT = "__admin_client"
"""The only client id that may write to internal topics."""
ZSTD = CompressionType.ZSTD
FIRST_ZSTD_VERSION = 7
PRODUCER = Struct(">qh")
"""Producer id and epoch."""
PRODUCER_POSITION = 43
FIRST_LEADER_HINT_VERSION = 10
NOT_FAILURES = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals that Kafka does not count as failed Produce requests."""
FIRST_ABORTABLE_VERSION = 11
"""Of Produce: clients have heard of TRANSACTION_ABORTABLE."""
FIRST_ADDING_VERSION = 12
"""Of Produce: it lets its partitions take part in the transaction (KIP-890, part 2)."""

PartitionProduceResponse = ProduceResponse.PartitionProduceResponse
TopicProduceResponse = ProduceResponse.TopicProduceResponse


def _is_transactional(asked: Asked) -> bool | Generator[None, None, bool]:
    """Whether there are records that say they are of a transaction, whoever's, and its id is told."""
    if asked.request.transactional_id is None:
        return False
    steps = _any_transactional(asked.request)
    return steps if asked.ctx.is_large else at_once(steps)


def _any_transactional(request: ProduceRequest) -> Generator[None, None, bool]:
    for topic in request.topic_data:
        for portion in portions(topic.partition_data):
            if any(data.records and says_transactional(data.records) for data in portion):
                return True
            yield
    return False


@handles(
    ProduceRequest,
    when(_is_transactional, on_transactional_id(WRITE), only_with="transactional_id"),
    on_topics(WRITE, "topic_data"),
)
def produce(
    services: Services, ctx: RequestContext, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append each partition's batch; answer at once where every append counts already."""
    acks = request.acks
    refused = None
    if not -1 <= acks <= 1:
        refused = KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {acks}")
    elif services.replicas.is_leadership_unproven():
        refused = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker stood still and may lead no more")
    batches = 0
    for topic in request.topic_data:
        batches += len(topic.partition_data) or 1  # one without any has its answer all the same
    if batches > MOST_AT_ONCE:
        return in_turns(_append_in_turns(services, ctx, request, refused))
    transaction = None
    if request.transactional_id is not None and refused is None:
        transaction, refused = at_once(_transaction(services, request, ctx.api_version))
    answer = DelayedAnswer(request.timeout_ms, lambda results: _answer(services, ctx, request, results))
    for topic in request.topic_data:
        _append(services, ctx, request, topic.name, topic.partition_data, answer, refused, transaction)
    if transaction is not None:
        transaction.ask()
    if answer.future is None:
        return _answer(services, ctx, request, answer.results)
    if answer.future.done():  # verified here, where the transaction is coordinated
        known: ProduceResponse | None = answer.future.result()
        return known
    if not answer.needs_request:
        ctx.may_be_overtaken = True
        for topic in request.topic_data:
            _let_go_of_records(topic.partition_data)
    elif transaction is not None:  # another broker is asked, or a record is written that lets partitions take part
        _let_overtake_once_verified(ctx, request, answer, transaction)
    return answer.future


def _let_overtake_once_verified(
    ctx: RequestContext, request: ProduceRequest, answer: DelayedAnswer, transaction: ProducedTransaction
) -> None:
    loop = asyncio.get_running_loop()
    transaction.then = lambda: loop.call_soon(_let_overtake, ctx, request, answer)


def _let_overtake(ctx: RequestContext, request: ProduceRequest, answer: DelayedAnswer) -> None:
    """All is in the logs, or refused, after a while: only replication is waited for."""
    assert answer.future is not None
    if ctx.late is None and not answer.needs_request and not answer.future.done():
        for topic in request.topic_data:
            _let_go_of_records(topic.partition_data)
        ctx.let_overtake()


def _let_go_of_records(partition_data: Sequence[ProduceRequest.PartitionProduceData]) -> None:
    """They are in the logs: the frame's memory may serve others."""
    for data in partition_data:
        data.records = None


def _append_in_turns(
    services: Services,
    ctx: RequestContext,
    request: ProduceRequest,
    refused: KafkaError | None,
) -> Generator[None, None, Awaitable[ProduceResponse | None]]:
    """Append very many batches; each is a matter of some ten microseconds."""
    transaction = None
    if request.transactional_id is not None and refused is None:
        transaction, refused = yield from _transaction(services, request, ctx.api_version)
    answer = DelayedAnswer(request.timeout_ms, lambda results: results)
    answer.hold()
    for topic in request.topic_data:
        for portion in portions(topic.partition_data, APPENDED_AT_ONCE) if topic.partition_data else ([],):
            _append(services, ctx, request, topic.name, portion, answer, refused, transaction)
            yield
    if transaction is not None:
        _let_overtake_once_verified(ctx, request, answer, transaction)
        transaction.ask()
    answer.release()
    if not answer.needs_request:
        ctx.may_be_overtaken = True  # looked at if this has taken no more than one turn
        for topic in request.topic_data:
            for portion in portions(topic.partition_data):
                _let_go_of_records(portion)
                yield
    return _answer_later(services, ctx, request, answer)


async def _answer_later(
    services: Services, ctx: RequestContext, request: ProduceRequest, answer: DelayedAnswer
) -> ProduceResponse | None:
    """Make the response for very many batches once all is known of them."""
    assert answer.future is not None
    _let_overtake(ctx, request, answer)
    outcomes: Sequence[Outcome] = await answer.future
    return await finished(in_turns(_answer_in_turns(services, ctx, request, outcomes)))


def _append(
    services: Services,
    ctx: RequestContext,
    request: ProduceRequest,
    name: str,
    partition_data: Sequence[ProduceRequest.PartitionProduceData],
    answer: DelayedAnswer,
    refused: KafkaError | None,
    transaction: ProducedTransaction | None,
) -> None:
    """Append batches to partitions of one topic: each has its result in the answer, now or later."""
    append, acks, version, now_ms = services.replicas.append, request.acks, ctx.api_version, ctx.received_at
    internal = name in INTERNAL_TOPICS and ctx.client_id != ADMIN_CLIENT
    unusual = internal or refused is not None or version < FIRST_ZSTD_VERSION
    traffic = services.replicas.traffic.get(name)
    if traffic is not None:
        traffic.produces += len(partition_data)
    if transaction is not None:
        transaction.look()
    for data in partition_data:
        records = data.records
        if (
            unusual
            or not records
            or len(records) <= ATTRIBUTES_POSITION
            or records[ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT
        ):
            error = refused or _records_error(records, version, internal, request.transactional_id)
            if error is not None:
                answer.results.append(error)
                continue
            if transaction is not None and is_transactional(records):
                append(name, data.index, records, acks, now_ms, answer, transaction=transaction)
                continue
        append(name, data.index, records, acks, now_ms, answer)


def says_transactional(records: Any) -> bool:
    """Whether a batch has the mark of a transaction."""
    return (
        len(records) >= HEADER_SIZE
        and records[MAGIC_POSITION] == MAGIC
        and bool(records[ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT)
    )


def is_transactional(records: Any) -> bool:
    """Whether it is a producer's batch that is part of a transaction."""
    return says_transactional(records) and PRODUCER.unpack_from(records, PRODUCER_POSITION)[0] >= 0


def _transaction(
    services: Services, request: ProduceRequest, version: int
) -> Generator[None, None, tuple[ProducedTransaction | None, KafkaError | None]]:
    """Return what verifies the request's partitions, if that has to be; or why the request is refused."""
    assert request.transactional_id is not None
    producers: set[tuple[int, int]] = set()
    for topic in request.topic_data:
        for portion in portions(topic.partition_data):
            producers.update(
                PRODUCER.unpack_from(data.records, PRODUCER_POSITION)
                for data in portion
                if data.records and is_transactional(data.records)
            )
            yield
    if not producers:
        return None, None
    if len(producers) > 1:
        text = "the batches of one request are those of several transactional producers"
        return None, KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
    transaction = Transaction(request.transactional_id, *producers.pop())
    knows_abortable, adds = version >= FIRST_ABORTABLE_VERSION, version >= FIRST_ADDING_VERSION
    return services.replicas.produced_transaction(transaction, knows_abortable, adds), None


def _records_error(records: Any, version: int, internal: bool, transactional_id: str | None) -> KafkaError | None:
    if not records:
        return KafkaError(ErrorCode.INVALID_RECORD, "there must be exactly one record batch per partition")
    has_attributes = len(records) > ATTRIBUTES_POSITION and records[MAGIC_POSITION] == MAGIC
    attributes = records[ATTRIBUTES_POSITION] if has_attributes else 0
    if version < FIRST_ZSTD_VERSION and attributes & COMPRESSION_MASK == ZSTD:
        return KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
    if attributes & TRANSACTIONAL_BIT and transactional_id is None:
        return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch without its id")
    if internal:
        return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not write to internal topics")
    return None


def _answer(
    services: Services, ctx: RequestContext, request: ProduceRequest, outcomes: Sequence[Outcome]
) -> ProduceResponse | None:
    """Make the response; with acks=0 there is none, and an error ends the connection."""
    if request.acks == 0:
        _close_if_refused(outcomes)
        return None
    hints: set[int] = set()
    responses = []
    rest = iter(outcomes)
    for topic in request.topic_data:
        answers = _partition_answers(services, ctx, topic.name, topic.partition_data, rest, hints)
        responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    return _response(services, ctx, responses, hints)


def _answer_in_turns(
    services: Services, ctx: RequestContext, request: ProduceRequest, outcomes: Sequence[Outcome]
) -> Generator[None, None, ProduceResponse | None]:
    """The same for very many batches."""
    if request.acks == 0:
        _close_if_refused(outcomes)
        return None
    hints: set[int] = set()
    responses = []
    rest = iter(outcomes)
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for portion in portions(topic.partition_data) if topic.partition_data else ([],):
            answers += _partition_answers(services, ctx, topic.name, portion, rest, hints)
            yield
        responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    return _response(services, ctx, responses, hints)


def _close_if_refused(outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, KafkaError):
            raise CloseConnection(f"Produce with acks=0 failed: {outcome}")


def _response(
    services: Services, ctx: RequestContext, responses: list[TopicProduceResponse], hints: set[int]
) -> ProduceResponse:
    if not hints:
        return ProduceResponse(responses=responses)
    endpoints = services.metadata.endpoints_of(hints, ctx.listener, ProduceResponse.NodeEndpoint)
    return ProduceResponse(responses=responses, node_endpoints=endpoints)


def _partition_answers(
    services: Services,
    ctx: RequestContext,
    topic: str,
    partition_data: Sequence[ProduceRequest.PartitionProduceData],
    outcomes: Iterator[Outcome],
    hints: set[int],
) -> list[PartitionProduceResponse]:
    """Answer for some partitions of a topic, of which the next outcomes are."""
    answers = []
    for data, outcome in zip(partition_data, outcomes, strict=False):
        if isinstance(outcome, KafkaError):
            _count_refusal(services, topic, data, outcome.code)
            answers.append(_refusal(services, ctx, topic, data.index, outcome, hints))
            continue
        answers.append(
            PartitionProduceResponse(
                index=data.index,
                error_code=ErrorCode.NONE,
                base_offset=outcome.base_offset,
                log_append_time_ms=outcome.log_append_time_ms,
                log_start_offset=outcome.log_start_offset,
            )
        )
    return answers


def _count_refusal(services: Services, topic: str, data: ProduceRequest.PartitionProduceData, error: ErrorCode) -> None:
    traffic = services.replicas.traffic.get(topic)
    if traffic is None:
        return
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        traffic.bytes_rejected += len(data.records or b"")
    elif error not in NOT_FAILURES:
        traffic.failed_produces += 1


def _refusal(
    services: Services, ctx: RequestContext, topic: str, partition: int, error: KafkaError, hints: set[int]
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(
        index=partition, error_code=error.code, base_offset=-1, error_message=error.message or None
    )
    if isinstance(error, RecordErrors):
        answer.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and ctx.api_version >= FIRST_LEADER_HINT_VERSION:
        known = services.replicas.known_leader(topic, partition)
        if known is not None:
            leader, epoch = known
            answer.current_leader = ProduceResponse.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            hints.add(leader)
    return answer

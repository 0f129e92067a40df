"""What transactional producers ask their coordinator, what other brokers ask it for them, what tools want to see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from kbroker.cluster.topic_names import INTERNAL_TOPICS, OFFSETS_TOPIC
from kbroker.coordinator.transaction import EPOCH_EACH, STATE_NAMES, Answer, Transaction, TransactionRecord
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import (
    CLUSTER_ACTION,
    DESCRIBE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Asked,
    Steps,
    each,
    inside,
    on_cluster,
    on_group,
    on_transactional_id,
    since_version,
    when,
)
from kbroker.handlers.registry import handles
from kbroker.protocol.codec import ElementWriter
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.grouping import Key, by_topic
from kbroker.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kbroker.replica.reply import Reply
from kbroker.replica.turns import Turn, Work, in_turns, portions

FIRST_BATCHED_VERSION = 4
"""Of AddPartitionsToTxn: for many transactions at once, from brokers."""
FIRST_FENCED_VERSION = 2
"""Producers that ask with older versions know PRODUCER_FENCED by another name."""
FIRST_EPOCH_EACH_VERSION = 5
"""Of EndTxn: each transaction has an epoch of its own (KIP-890)."""

TOGETHER = 10
"""Transactions of a large request of a broker that are worked off at the same time."""

T = TypeVar("T")
ErrorOf = Callable[[Key], ErrorCode]
Refusal = Callable[[Key], ErrorCode | None]
Topics = Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
AskedByBroker = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
ResultForBroker = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
TopicResult = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
PartitionResult = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult


def known_error(error: ErrorCode, version: int, first_fenced_version: int = FIRST_FENCED_VERSION) -> ErrorCode:
    """Return an error as clients of a version know it."""
    is_old = version < first_fenced_version
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old and error is ErrorCode.PRODUCER_FENCED else error


# --- AddPartitionsToTxn, AddOffsetsToTxn --------------------------------------------------------------------------


def _may_add(asked: Asked) -> Steps | None:
    """Before brokers asked in this way. One topic that is refused, and nothing is added."""
    request = asked.request
    if not asked.may(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    steps = _may_write(asked)
    if asked.ctx.is_large:
        asked.ctx.ends_with_connection = True  # also while this is looked at
        return steps
    for _ in steps:
        pass
    return None


def _may_write(asked: Asked) -> Steps:
    wanted = asked.request.v3_and_below_topics
    refused = set()
    for topic in wanted:
        if topic.name in INTERNAL_TOPICS or not asked.may(WRITE, TOPIC, topic.name, len(topic.partitions)):
            refused.add(topic.name)
        yield
    if not refused:
        return
    metadata = asked.services.metadata

    def error_of(key: Key) -> ErrorCode:
        if key[0] in refused:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.OPERATION_NOT_ATTEMPTED if metadata.knows(*key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asked.answer(lambda: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topic_results(wanted, error_of)))


@handles(AddPartitionsToTxnRequest, when(since_version(FIRST_BATCHED_VERSION), on_cluster(CLUSTER_ACTION), _may_add))
def add_partitions_to_txn(
    services: Services, ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    """Let partitions take part in a transaction; or only tell whether they do (KIP-890).

    What waits for the end of the transaction before does so no longer than its connection: nobody is left to end the
    one that it would begin. What brokers ask for many at once does not wait: one would hold up the others.
    """
    ctx.ends_with_connection = True
    if ctx.api_version >= FIRST_BATCHED_VERSION:
        return _add_for_brokers(services, ctx, request)
    if ctx.is_large:
        return _add_many(services, ctx, request)
    keys = _keys(request.v3_and_below_topics)
    refused = {key: error for key in keys if (error := _refusal(services, key)) is not None}
    return _add_all(services, ctx, request, refused)


def _add_for_brokers(
    services: Services, ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    """Where all is only to be verified, a leader waits with batches in hand: that is answered at once."""
    asked = request.transactions
    if not ctx.is_large and all(each.verify_only for each in asked):
        return AddPartitionsToTxnResponse(results_by_transaction=[_verify(services, each) for each in asked])
    return _add_or_verify_all(services, ctx.api_version, asked, TOGETHER if ctx.is_large else len(asked))


async def _add_or_verify_all(
    services: Services, version: int, asked: Sequence[AskedByBroker], together: int
) -> AddPartitionsToTxnResponse:
    results: list[ResultForBroker] = []
    for portion in portions(asked, together):
        results += await asyncio.gather(*(_add_or_verify(services, version, each) for each in portion))
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add_many(
    services: Services, ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    topics = request.v3_and_below_topics
    refusal = partial(_refusal, services)
    keys = await _keys_in_turns(topics, refusal)
    if keys is None:
        error_of = _none_of(refusal)
    else:
        answer = await services.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            keys,
        )
        error_of = _same(known_error(answer.error, ctx.api_version))
    results = await _topic_results_in_turns(topics, ctx.api_version, lambda keys: error_of)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _keys_in_turns(topics: Topics, refusal: Refusal) -> list[Key] | None:
    """Return the partitions, each once; None where some are refused."""
    turn = Turn()
    keys: dict[Key, None] = {}
    for topic in topics:
        for portion in portions(topic.partitions):
            for partition in portion:
                key = topic.name, partition
                if refusal(key) is not None:
                    return None
                keys[key] = None
            await turn.end_if_over()
        await turn.end_if_over()
    return list(keys)


def _refusal(services: Services, key: Key) -> ErrorCode | None:
    """Why no client may add a partition. A marker in __transaction_state would be no record that its readers know."""
    if key[0] in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _unknown(services, key)


def _unknown(services: Services, key: Key) -> ErrorCode | None:
    return None if services.metadata.knows(*key) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _none_of(refusal: Refusal) -> ErrorOf:
    """The errors where some are refused: nothing is added."""
    return lambda key: refusal(key) or ErrorCode.OPERATION_NOT_ATTEMPTED


def _same(error: ErrorCode) -> ErrorOf:
    return lambda key: error


def _add_all(
    services: Services, ctx: RequestContext, request: AddPartitionsToTxnRequest, refused: dict[Key, ErrorCode]
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    """Add all partitions, or none if some are refused."""
    topics = request.v3_and_below_topics
    if refused:
        results = _topic_results(topics, _none_of(refused.get))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    keys = list(_keys(topics))
    asked = services.transactions.add_partitions(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        keys,
    )
    version = ctx.api_version

    def response(answer: Answer) -> AddPartitionsToTxnResponse:
        results = _topic_results(topics, _same(known_error(answer.error, version)))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    return _answered(asked, response)


async def _add(
    services: Services,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    keys: Sequence[Key],
    version: int = 0,
    may_wait: bool = True,
) -> ErrorCode:
    producer = transactional_id, producer_id, producer_epoch
    try:
        return (await services.transactions.add_partitions(*producer, keys, version, may_wait)).error
    except KafkaError as error:
        return error.code


async def _add_or_verify(services: Services, version: int, asked: AskedByBroker) -> ResultForBroker:
    producer = asked.transactional_id, asked.producer_id, asked.producer_epoch
    if asked.verify_only:
        results = await _topic_results_in_turns(
            asked.topics, version, lambda keys: services.transactions.verify(*producer, keys).__getitem__
        )
    else:
        refusal = partial(
            _unknown, services
        )  # when the transaction ends they would count as deleted, and get no marker
        keys = await _keys_in_turns(asked.topics, refusal)
        if keys is None:
            error_of = _none_of(refusal)
        else:
            # Of other brokers, for producers whose transactions have epochs of their own.
            error_of = _same(await _add(services, *producer, keys, EPOCH_EACH, may_wait=False))
        results = await _topic_results_in_turns(asked.topics, version, lambda keys: error_of)
    return ResultForBroker(transactional_id=asked.transactional_id, topic_results=results)


def _verify(services: Services, asked: AskedByBroker) -> ResultForBroker:
    producer = asked.transactional_id, asked.producer_id, asked.producer_epoch
    errors = services.transactions.verify(*producer, list(_keys(asked.topics)))
    results = _topic_results(asked.topics, errors.__getitem__)
    return ResultForBroker(transactional_id=asked.transactional_id, topic_results=results)


def _keys(topics: Topics) -> Iterable[Key]:
    return ((topic.name, partition) for topic in topics for partition in topic.partitions)


def _topic_results(topics: Topics, error_of: ErrorOf) -> list[TopicResult]:
    return [
        TopicResult(
            name=topic.name,
            results_by_partition=[
                PartitionResult(partition_index=partition, partition_error_code=error_of((topic.name, partition)))
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


async def _topic_results_in_turns(
    topics: Topics, version: int, judge: Callable[[list[Key]], ErrorOf]
) -> list[TopicResult]:
    """`judge`: tells of some partitions at a time what their errors are."""
    turn = Turn()
    results = []
    for topic in topics:
        partitions = ElementWriter(AddPartitionsToTxnResponse, version)
        for portion in portions(topic.partitions):
            keys = [(topic.name, partition) for partition in portion]
            error_of = judge(keys)
            for key in keys:
                partitions.append(PartitionResult(partition_index=key[1], partition_error_code=error_of(key)))
            await turn.end_if_over()
        results.append(TopicResult(name=topic.name, results_by_partition=partitions.array()))
        await turn.end_if_over()
    return results


@handles(AddOffsetsToTxnRequest, on_transactional_id(WRITE), on_group(READ))
def add_offsets_to_txn(
    services: Services, ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> Awaitable[AddOffsetsToTxnResponse]:
    """Let the partition of __consumer_offsets that holds a group take part in a transaction."""
    ctx.ends_with_connection = True
    return _add_offsets_to_txn(services, ctx, request)


async def _add_offsets_to_txn(
    services: Services, ctx: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    key = (OFFSETS_TOPIC, services.groups.partition_for(request.group_id))
    error = await _add(services, request.transactional_id, request.producer_id, request.producer_epoch, [key])
    return AddOffsetsToTxnResponse(error_code=known_error(error, ctx.api_version))


# --- EndTxn -------------------------------------------------------------------------------------------------------


@handles(EndTxnRequest, on_transactional_id(WRITE))
def end_txn(
    services: Services, ctx: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | Awaitable[EndTxnResponse]:
    """Commit or abort: answered when that is decided; the markers follow.

    Whoever ends many transactions sends one request behind the other: what comes in one turn of the loop is decided by
    one append for each partition of __transaction_state.
    """
    ctx.may_be_overtaken = True
    transactions = services.transactions
    end = transactions.end_each if ctx.api_version >= FIRST_EPOCH_EACH_VERSION else transactions.end
    asked = end(request.transactional_id, request.producer_id, request.producer_epoch, request.committed)
    version = ctx.api_version
    return _answered(
        asked,
        lambda answer: EndTxnResponse(
            error_code=known_error(answer.error, version),
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
        ),
    )


def _answered(asked: Awaitable[Answer], response: Callable[[Answer], T]) -> T | Awaitable[T]:
    """Return what a coordinator's answer is on the wire, at once if it is known. No task where none is needed."""
    if not isinstance(asked, asyncio.Future):
        asked = asyncio.ensure_future(asked)
    elif asked.done():
        return response(asked.result())
    reply = Reply()

    def answered(future: asyncio.Future[Answer]) -> None:
        if reply.done():
            return
        try:
            answer = response(future.result())
        except (Exception, asyncio.CancelledError) as error:
            reply.set_exception(error)
        else:
            reply.set_result(answer)

    asked.add_done_callback(answered)
    reply.add_done_callback(lambda _: asked.cancel())  # nobody wants it, if it is not done
    return reply


# --- what tools see -----------------------------------------------------------------------------------------------


@handles(
    DescribeTransactionsRequest, each(TRANSACTIONAL_ID, DESCRIBE, "transactional_ids", None), ends_with_connection=True
)
def describe_transactions(
    services: Services, ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Awaitable[DescribeTransactionsResponse]:
    """Tell the state of transactions by transactional id; of one that is named often, once."""
    return in_turns(_describe_all(services, ctx, request))


def _describe_all(
    services: Services, ctx: RequestContext, request: DescribeTransactionsRequest
) -> Work[DescribeTransactionsResponse]:
    states = ElementWriter(DescribeTransactionsResponse, ctx.api_version)
    for transactional_id in dict.fromkeys(request.transactional_ids):
        try:
            states.append(_description(ctx, transactional_id, services.transactions.describe(transactional_id)))
        except KafkaError as error:
            states.append(_no_description(transactional_id, error.code))
        yield
    return DescribeTransactionsResponse(transaction_states=states.array())


def _description(ctx: RequestContext, transactional_id: str, record: TransactionRecord) -> Any:
    return DescribeTransactionsResponse.TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=record.state.wire_name,
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.start_ms,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        topics=[
            DescribeTransactionsResponse.TopicData(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(sorted(record.partitions)).items()
            if ctx.authority.could(DESCRIBE, TOPIC, topic, "DescribeTransactions")
        ],
    )


def _no_description(transactional_id: str, error: ErrorCode) -> Any:
    return DescribeTransactionsResponse.TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


@handles(ListTransactionsRequest, inside("what may not be described is not listed"), ends_with_connection=True)
def list_transactions(
    services: Services, ctx: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | Awaitable[ListTransactionsResponse]:
    """Tell the transactional ids that this broker coordinates, as far as they match all filters."""
    unknown = [name for name in request.state_filters if name not in STATE_NAMES]
    try:
        transactions = services.transactions.transactions()
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code, unknown_state_filters=unknown, transaction_states=[])
    return in_turns(_list(ctx, request, unknown, transactions))


def _list(
    ctx: RequestContext, request: ListTransactionsRequest, unknown: list[str], transactions: Iterable[Transaction]
) -> Work[ListTransactionsResponse]:
    states = frozenset(request.state_filters)
    producer_ids = frozenset(request.producer_id_filters)
    found = ElementWriter(ListTransactionsResponse, ctx.api_version)
    for transaction in transactions:
        record = transaction.record
        if (
            (not states or record.state.wire_name in states)
            and (not producer_ids or record.producer_id in producer_ids)
            and (request.duration_filter < 0 or ctx.received_at - record.start_ms > request.duration_filter)
            and ctx.authority.could(DESCRIBE, TRANSACTIONAL_ID, transaction.transactional_id, "ListTransactions")
        ):
            found.append(
                ListTransactionsResponse.TransactionState(
                    transactional_id=transaction.transactional_id,
                    producer_id=record.producer_id,
                    transaction_state=record.state.wire_name,
                )
            )
        yield
    return ListTransactionsResponse(
        error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=found.array()
    )

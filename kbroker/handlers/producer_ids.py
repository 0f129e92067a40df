"""InitProducerId for idempotent producers, and AllocateProducerIds, by which brokers get blocks of ids from the
controller.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import (
    CLUSTER,
    CLUSTER_ACTION,
    IDEMPOTENT_WRITE,
    REFUSED,
    TOPIC,
    WRITE,
    Asked,
    on_cluster,
    on_transactional_id,
    when,
)
from kbroker.handlers.registry import handles
from kbroker.handlers.transactional_ids import known_error
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.replication import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kbroker.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

FIRST_FENCED_VERSION = 4
"""Of InitProducerId: older clients know PRODUCER_FENCED by another name."""


def _has_transactional_id(asked: Asked) -> bool:
    return asked.request.transactional_id is not None


def _may_write_idempotently(asked: Asked) -> None:
    """Whoever may write to some topic may do so idempotently."""
    if not asked.could(IDEMPOTENT_WRITE, CLUSTER) and not asked.authority.may_with_any(WRITE, TOPIC, asked.api):
        raise KafkaError(REFUSED[CLUSTER])


@handles(InitProducerIdRequest, when(_has_transactional_id, on_transactional_id(WRITE), _may_write_idempotently))
def init_producer_id(
    services: Services, ctx: RequestContext, request: InitProducerIdRequest
) -> Awaitable[InitProducerIdResponse]:
    """Give an idempotent producer a fresh id with epoch 0, a transactional one the id and next epoch of its name.

    One that waits does so no longer than its connection: its sender asks again, and must not be shut out by itself.
    """
    ctx.ends_with_connection = request.transactional_id is not None
    return _init_producer_id(services, ctx, request)


async def _init_producer_id(
    services: Services, ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _init_transactional(services, ctx, request)
    producer_id = await services.producer_ids.next_id()
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)


async def _init_transactional(
    services: Services, ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    expected = None if request.producer_id < 0 else (request.producer_id, request.producer_epoch)
    try:
        answer = await services.transactions.init_producer_id(
            request.transactional_id or "", request.transaction_timeout_ms, expected
        )
    except KafkaError as error:
        return _refused(error.code)
    if answer.error is not ErrorCode.NONE:
        return _refused(known_error(answer.error, ctx.api_version, FIRST_FENCED_VERSION))
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


@handles(AllocateProducerIdsRequest, on_cluster(CLUSTER_ACTION))
async def allocate_producer_ids(
    services: Services, ctx: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """Give a broker the next block of ids; the controller only."""
    answer: AllocateProducerIdsResponse = await services.controller.allocate_producer_ids(request)
    return answer

"""InitProducerId for idempotent producers, and AllocateProducerIds, by which brokers get blocks of ids from the
controller.
"""

from __future__ import annotations

from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kbroker.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse


@handles(InitProducerIdRequest)
async def init_producer_id(
    services: Services, ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Give an idempotent producer a fresh id with epoch 0. Transactional ids have no coordinator here yet.

    FindCoordinator is not advertised either, so that a transactional client stops before it comes here; one that
    comes all the same learns that no coordinator exists for it, as from a broker that lacks __transaction_state.
    """
    if request.transactional_id is not None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if request.transactional_id else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    producer_id = await services.producer_ids.next_id()
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)


@handles(AllocateProducerIdsRequest)
async def allocate_producer_ids(
    services: Services, ctx: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """Give a broker the next block of ids; the controller only."""
    answer: AllocateProducerIdsResponse = await services.controller.allocate_producer_ids(request)
    return answer

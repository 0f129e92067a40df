"""FindCoordinator: which broker speaks for a group or a transactional id. The topic that holds them is made when first
asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Sequence

from kbroker.cluster.topic_creation import create_missing_topics
from kbroker.coordinator.group_coordinator import GroupCoordinator
from kbroker.coordinator.transaction_coordinator import TransactionCoordinator
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import DESCRIBE, Asked, Demand, each, named, since_version, when
from kbroker.handlers.registry import handles
from kbroker.protocol.codec import ElementWriter
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from kbroker.replica.turns import finished, in_turns
from kbroker.security.acls import AclResource

GROUP, TRANSACTION, SHARE = 0, 1, 2
FIRST_SHARE_VERSION = 6
FIRST_BATCHED_VERSION = 4
FIRST_TOPIC_S = 2.0
"""How long a first question waits for the new topic's leaders: sooner than the client would ask again."""

MOST_WAITED_FOR = 100

Coordinator = FindCoordinatorResponse.Coordinator


def _is_about_transactions(asked: Asked) -> bool:
    return bool(asked.request.key_type == TRANSACTION)


def _may_find(resource: AclResource) -> Demand:
    return when(
        since_version(FIRST_BATCHED_VERSION),
        each(resource, DESCRIBE, "coordinator_keys", None),
        named(resource, DESCRIBE, "key"),
    )


@handles(
    FindCoordinatorRequest,
    when(_is_about_transactions, _may_find(AclResource.TRANSACTIONAL_ID), _may_find(AclResource.GROUP)),
)
def find_coordinator(
    services: Services, ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    """Say where the coordinator of each key is."""
    if request.key_type == SHARE and ctx.api_version >= FIRST_SHARE_VERSION:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if request.key_type not in (GROUP, TRANSACTION):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {request.key_type}")
    if _coordinator(services, request).topic.topic not in services.metadata.topics:
        return _create_and_answer(services, ctx, request)
    return in_turns(_answer(services, ctx, request))


async def _create_and_answer(
    services: Services, ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    topic = _coordinator(services, request).topic
    await topic.create(lambda: create_missing_topics(services, [topic.topic]))
    first_keys = _keys(ctx, request)[:MOST_WAITED_FOR]
    await services.metadata.wait_for(
        lambda cache: all(_locate(services, ctx, request, key).error_code is ErrorCode.NONE for key in first_keys),
        FIRST_TOPIC_S,
    )
    return await finished(in_turns(_answer(services, ctx, request)))


def _keys(ctx: RequestContext, request: FindCoordinatorRequest) -> Sequence[str]:
    return request.coordinator_keys if ctx.api_version >= FIRST_BATCHED_VERSION else [request.key]


def _answer(
    services: Services, ctx: RequestContext, request: FindCoordinatorRequest
) -> Generator[None, None, FindCoordinatorResponse]:
    if ctx.api_version >= FIRST_BATCHED_VERSION:
        found = ElementWriter(FindCoordinatorResponse, ctx.api_version)
        for key in request.coordinator_keys:
            found.append(_locate(services, ctx, request, key))
            yield
        return FindCoordinatorResponse(coordinators=found.array())
    only = _locate(services, ctx, request, request.key)
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message or "NONE",
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(services: Services, request: FindCoordinatorRequest) -> GroupCoordinator | TransactionCoordinator:
    return services.transactions if request.key_type == TRANSACTION else services.groups


def _locate(services: Services, ctx: RequestContext, request: FindCoordinatorRequest, key: str) -> Coordinator:
    metadata = services.metadata
    coordinator = _coordinator(services, request)
    partition = metadata.partition(coordinator.topic.topic, coordinator.partition_for(key))
    endpoint = None if partition is None else metadata.endpoint(partition.leader, ctx.listener)
    if partition is None or endpoint is None:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            error_message="The coordinator is not available.",
        )
    host, port = endpoint
    return Coordinator(
        key=key, node_id=partition.leader, host=host, port=port, error_code=ErrorCode.NONE, error_message=""
    )

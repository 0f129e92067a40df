"""DescribeCluster: id, controller and brokers. UpdateFeatures: what the brokers do together."""

from __future__ import annotations

from contextlib import suppress

from kbroker.cluster.metadata_cache import NO_LEADER
from kbroker.controller.features import Update
from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.controller.znodes import MalformedZnode
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import ALTER, nothing, on_cluster
from kbroker.handlers.metadata import cluster_operations
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE = 1
"""Of an update; the other types lower a level, with care or without."""
MOST_UPDATES = 1_000
"""Of one request: it is answered in one turn of the loop."""
BROKERS_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2


@handles(DescribeClusterRequest, nothing("as Kafka: whoever may connect knows the brokers"))
def describe_cluster(
    services: Services, ctx: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Answer from the metadata cache, with the endpoints of the listener that was asked."""
    if request.endpoint_type == CONTROLLER_ENDPOINTS:
        text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
    if request.endpoint_type != BROKERS_ENDPOINTS:
        text = f"Unsupported endpoint type {request.endpoint_type}"
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, text)
    cache = services.metadata
    answer = DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=services.cluster_id,
        controller_id=NO_LEADER if cache.controller_id is None else cache.controller_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker.id,
                host=broker.endpoints[ctx.listener][0],
                port=broker.endpoints[ctx.listener][1],
                rack=broker.rack,
            )
            for broker in cache.brokers.values()
            if ctx.listener in broker.endpoints
        ],
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = cluster_operations(ctx, "DescribeCluster")
    return answer


@handles(UpdateFeaturesRequest, on_cluster(ALTER))
async def update_features(
    services: Services, ctx: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Raise or lower the levels of features: the controller, and only what all brokers support."""
    if len(request.feature_updates) > MOST_UPDATES:
        text = f"{len(request.feature_updates)} features are more than there can be: send {MOST_UPDATES} at most"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    updates = [
        Update(
            each.feature,
            each.max_version_level,
            each.upgrade_type != UPGRADE if ctx.api_version else each.allow_downgrade,
        )
        for each in request.feature_updates
    ]
    outcomes = await services.controller.update_features(updates, request.validate_only)
    with suppress(ZooKeeperError, MalformedZnode):
        await services.features.read()  # who asks here next sees it; the other brokers hear of it soon
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE,
        results=[
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=update.feature,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )
            for update, error in zip(updates, outcomes, strict=True)
        ],
    )

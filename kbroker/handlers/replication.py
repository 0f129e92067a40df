"""LeaderAndIsr, StopReplica, UpdateMetadata: the controller's orders to this broker."""

from __future__ import annotations

from collections.abc import Awaitable

from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import CLUSTER_ACTION, on_cluster
from kbroker.handlers.registry import handles
from kbroker.protocol.messages.replication import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kbroker.replica.turns import Turn, in_turns


@handles(LeaderAndIsrRequest, on_cluster(CLUSTER_ACTION))
async def leader_and_isr(services: Services, ctx: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    """Lead or follow the partitions named; overrides of topics that are new here are read first, nobody tells of
    them.
    """
    new, turn = [], Turn()
    for topic in request.topic_states:
        name = topic.topic_name
        if any(services.logs.get(name, state.partition_index) is None for state in topic.partition_states):
            new.append(name)
        await turn.end_if_over()
    if new:
        await services.configs.load_topics(new)
    return await services.replicas.become_leader_or_follower(request, ctx.api_version)


@handles(StopReplicaRequest, on_cluster(CLUSTER_ACTION))
async def stop_replica(services: Services, ctx: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
    """Stop hosting the partitions named, and delete those marked so."""
    return await services.replicas.stop_replicas(request, ctx.api_version)


@handles(UpdateMetadataRequest, on_cluster(CLUSTER_ACTION))
def update_metadata(
    services: Services, ctx: RequestContext, request: UpdateMetadataRequest
) -> UpdateMetadataResponse | Awaitable[UpdateMetadataResponse]:
    """Take over what the controller says about brokers, topics and leaders."""
    if ctx.is_large:
        return in_turns(services.replicas.update_metadata_in_turns(request))
    return services.replicas.update_metadata(request)

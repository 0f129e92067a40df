"""What brokers and tools ask of the controller: shutdown, ISR changes, elections, reassignments."""

from __future__ import annotations

import time
from collections.abc import Awaitable

from kbroker.controller.znodes import TopicPartition
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import ALTER, CLUSTER_ACTION, DESCRIBE, on_cluster
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kbroker.protocol.messages.replication import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from kbroker.replica.turns import in_turns, only_waits


@handles(ControlledShutdownRequest, on_cluster(CLUSTER_ACTION))
async def controlled_shutdown(
    services: Services, ctx: RequestContext, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """A broker wants to stop: hand its leaderships over."""
    return await services.controller.controlled_shutdown(request, ctx.api_version)


@handles(AlterPartitionRequest, on_cluster(CLUSTER_ACTION))
async def alter_partition(
    services: Services, ctx: RequestContext, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    """A leader wants to change the ISR of its partitions."""
    return await services.controller.alter_partition(request, ctx.api_version)


@handles(ElectLeadersRequest, on_cluster(ALTER))
async def elect_leaders(services: Services, ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect leaders; answers when the metadata cache shows them, for those it does not show in time with code 7."""
    deadline = time.monotonic() + request.timeout_ms / 1000
    held = await services.controller.elect_leaders(request)
    only_waits()
    cache, epochs = services.metadata, held.leader_epochs

    def is_shown(each: TopicPartition) -> bool:
        info = cache.partition(*each)
        return info is not None and info.leader_epoch >= epochs[each]

    late = set(await cache.wait_for_all(epochs, is_shown, deadline - time.monotonic()))
    for topic in held.response.replica_election_results if late else ():
        for partition in topic.partition_result:
            if (topic.topic, partition.partition_id) in late:
                partition.error_code = ErrorCode.REQUEST_TIMED_OUT
    return held.response


@handles(AlterPartitionReassignmentsRequest, on_cluster(ALTER))
async def alter_partition_reassignments(
    services: Services, ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin or cancel reassignments."""
    return await services.controller.alter_reassignments(request)


@handles(ListPartitionReassignmentsRequest, on_cluster(DESCRIBE), ends_with_connection=True)
def list_partition_reassignments(
    services: Services, ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse | Awaitable[ListPartitionReassignmentsResponse]:
    """List the reassignments under way."""
    return in_turns(services.controller.list_reassignments(request))

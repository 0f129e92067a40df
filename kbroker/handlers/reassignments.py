"""What brokers and tools ask of the controller: shutdown, ISR changes, elections, reassignments."""

from __future__ import annotations

from kbroker.handlers.context import RequestContext, Services
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


@handles(ControlledShutdownRequest)
async def controlled_shutdown(
    services: Services, ctx: RequestContext, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """A broker wants to stop: hand its leaderships over."""
    answer: ControlledShutdownResponse = await services.controller.controlled_shutdown(request, ctx.api_version)
    return answer


@handles(AlterPartitionRequest)
async def alter_partition(
    services: Services, ctx: RequestContext, request: AlterPartitionRequest
) -> AlterPartitionResponse:
    """A leader wants to change the ISR of its partitions."""
    answer: AlterPartitionResponse = await services.controller.alter_partition(request, ctx.api_version)
    return answer


@handles(ElectLeadersRequest)
async def elect_leaders(services: Services, ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect leaders; answers when the metadata cache shows them, or when the time is over."""
    answer: ElectLeadersResponse = await services.controller.elect_leaders(request)
    elected = {
        (topic.topic, partition.partition_id)
        for topic in answer.replica_election_results
        for partition in topic.partition_result
        if partition.error_code is ErrorCode.NONE
    }
    if elected and request.timeout_ms > 0:
        await services.metadata.wait_for(
            lambda cache: all(
                (info := cache.partition(*each)) is not None and info.leader in cache.brokers for each in elected
            ),
            request.timeout_ms / 1000,
        )
    return answer


@handles(AlterPartitionReassignmentsRequest)
async def alter_partition_reassignments(
    services: Services, ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin or cancel reassignments."""
    answer: AlterPartitionReassignmentsResponse = await services.controller.alter_reassignments(request)
    return answer


@handles(ListPartitionReassignmentsRequest)
async def list_partition_reassignments(
    services: Services, ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """List the reassignments under way."""
    answer: ListPartitionReassignmentsResponse = await services.controller.list_reassignments(request)
    return answer

"""What handlers ask of the controller: requests in, responses out; NOT_CONTROLLER while another broker is."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

from kbroker.controller import events
from kbroker.controller.machine import Machine
from kbroker.controller.reassignment import list_reassignments
from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.controller.znodes import MalformedZnode
from kbroker.controller.zookeeper import ZooKeeper
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
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

log = logging.getLogger(__name__)


class ApiCalls:
    """Calls under way. They take their turn in the controller's queue, and end with its term at the latest."""

    def __init__(
        self,
        machine: Machine,
        zookeeper: ZooKeeper,
        is_active: Callable[[], bool],
        tell: Callable[[events.Event], None],
    ) -> None:
        self._machine = machine
        self._zookeeper = zookeeper
        self._is_active = is_active
        self._tell = tell
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._producer_ids = asyncio.Lock()

    def answer(self, call: int, response: Any) -> None:
        """The machine's answer to a call."""
        future = self._waiting.pop(call, None)
        if future is not None and not future.done():
            future.set_result(response)

    def end(self) -> None:
        """The term is over: whoever waits is told so."""
        for call in list(self._waiting):
            self.answer(call, None)

    async def _ask(self, make_event: Callable[[int], events.Event]) -> Any:
        """The answer, None when we are not the controller or cease to be."""
        if not self._is_active():
            return None
        call = next(self._numbers)
        self._waiting[call] = asyncio.get_running_loop().create_future()
        try:
            future = self._waiting[call]
            self._tell(make_event(call))
            return await future
        finally:
            self._waiting.pop(call, None)

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """A leader changes ISRs."""
        answer = await self._ask(lambda call: events.AlterPartitionCalled(call, request, version))
        return answer or AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NOT_CONTROLLER, topics=[])

    async def controlled_shutdown(self, request: ControlledShutdownRequest, version: int) -> ControlledShutdownResponse:
        """A broker wants to stop. The code for "not the controller" is STALE_CONTROLLER_EPOCH here, as in Kafka."""
        answer = await self._ask(lambda call: events.ControlledShutdownCalled(call, request, version))
        return answer or ControlledShutdownResponse(
            error_code=ErrorCode.STALE_CONTROLLER_EPOCH, remaining_partitions=[]
        )

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Preferred or unclean elections; answered when written, before the metadata caches show them."""
        answer: ElectLeadersResponse | None = await self._ask(lambda call: events.ElectLeadersCalled(call, request))
        if answer is not None:
            return answer
        results = [
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersResponse.PartitionResult(
                        partition_id=each, error_code=ErrorCode.NOT_CONTROLLER, error_message=None
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ]
        return ElectLeadersResponse(
            throttle_time_ms=0, error_code=ErrorCode.NOT_CONTROLLER, replica_election_results=results
        )

    async def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Begin or take back moves of replicas; answered when they have begun."""
        answer = await self._ask(lambda call: events.ReassignmentsCalled(call, request))
        return answer or AlterPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=ErrorCode.NOT_CONTROLLER, error_message=None, responses=[]
        )

    async def list_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """The moves under way."""
        if not self._is_active():
            return ListPartitionReassignmentsResponse(
                throttle_time_ms=0, error_code=ErrorCode.NOT_CONTROLLER, error_message=None, topics=[]
            )
        return list_reassignments(self._machine.state, request)

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        """The next 1,000 producer ids for a broker."""
        refusal = self._refused(request)
        if refusal is not None:
            return _producer_ids(refusal)
        try:
            async with self._producer_ids:
                block = await self._zookeeper.next_producer_id_block(request.broker_id)
        except (ZooKeeperError, MalformedZnode) as error:
            log.error("no producer ids for broker %d: %s", request.broker_id, error)
            block = None
        if block is None:
            return _producer_ids(ErrorCode.UNKNOWN_SERVER_ERROR)
        return _producer_ids(ErrorCode.NONE, block.first, block.last - block.first + 1)

    def _refused(self, request: AllocateProducerIdsRequest) -> ErrorCode | None:
        if not self._is_active():
            return ErrorCode.NOT_CONTROLLER
        broker = self._machine.state.brokers.get(request.broker_id)
        if broker is None:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        return None if broker.epoch == request.broker_epoch else ErrorCode.STALE_BROKER_EPOCH


def _producer_ids(code: ErrorCode, first: int = 0, count: int = 0) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=code, producer_id_start=first, producer_id_len=count
    )

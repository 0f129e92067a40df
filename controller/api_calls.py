"""What handlers ask of the controller: requests in, responses out; NOT_CONTROLLER while another broker is."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeVar

from kbroker.controller import events, features
from kbroker.controller.admin_elections import ElectionsHeld, refuse_elections
from kbroker.controller.machine import Machine
from kbroker.controller.reassignment import list_reassignments
from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.controller.znodes import MalformedZnode
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
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

T = TypeVar("T")


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
        self._asked_active = is_active
        self._tell = tell
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._producer_ids = asyncio.Lock()

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._asked_active()

    def answer(self, call: int, response: Any) -> None:
        """The machine's answer to a call, or why there is none."""
        future = self._waiting.pop(call, None)
        if future is not None and not future.done():
            future.set_result(response)

    def end(self) -> None:
        """The term is over: whoever waits is told so."""
        for call in list(self._waiting):
            self.answer(call, ErrorCode.NOT_CONTROLLER)

    def fail(self, call: int | None) -> None:
        """What a call asked for went wrong in a way that nobody expects."""
        if call is not None:
            self.answer(call, ErrorCode.UNKNOWN_SERVER_ERROR)

    async def _ask(self, make_event: Callable[[int], events.Event], refuse: Callable[[ErrorCode], T]) -> T:
        """The answer; what `refuse` makes of NOT_CONTROLLER when we are not or cease to be, or of our own failure."""
        if not self.is_active:
            return refuse(ErrorCode.NOT_CONTROLLER)
        call = next(self._numbers)
        future = self._waiting[call] = asyncio.get_running_loop().create_future()
        try:
            self._tell(make_event(call))
            answer: T | ErrorCode = await future
        finally:
            self._waiting.pop(call, None)
        return refuse(answer) if isinstance(answer, ErrorCode) else answer

    async def serve(self, request: Any, version: int) -> Any:
        """Whatever a broker asks of the controller: for the broker that we live in."""
        match request:
            case AlterPartitionRequest():
                return await self.alter_partition(request, version)
            case ControlledShutdownRequest():
                return await self.controlled_shutdown(request, version)
            case AllocateProducerIdsRequest():
                return await self.allocate_producer_ids(request)
        raise AssertionError(f"no broker asks this of the controller: {type(request).__name__}")

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """A leader changes ISRs."""
        return await self._ask(
            lambda call: events.AlterPartitionCalled(call, request, version),
            lambda code: AlterPartitionResponse(throttle_time_ms=0, error_code=code, topics=[]),
        )

    async def controlled_shutdown(self, request: ControlledShutdownRequest, version: int) -> ControlledShutdownResponse:
        """A broker wants to stop. The code for "not the controller" is STALE_CONTROLLER_EPOCH here, as in Kafka."""

        def refuse(code: ErrorCode) -> ControlledShutdownResponse:
            own = ErrorCode.STALE_CONTROLLER_EPOCH if code is ErrorCode.NOT_CONTROLLER else code
            return ControlledShutdownResponse(error_code=own, remaining_partitions=[])

        return await self._ask(lambda call: events.ControlledShutdownCalled(call, request, version), refuse)

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectionsHeld:
        """Preferred or unclean elections; answered when written, before the metadata caches show them."""

        def refuse(code: ErrorCode) -> ElectionsHeld:
            return refuse_elections(request, code)

        return await self._ask(lambda call: events.ElectLeadersCalled(call, request), refuse)

    async def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Begin or take back moves of replicas; answered when they have begun."""
        return await self._ask(
            lambda call: events.ReassignmentsCalled(call, request),
            lambda code: AlterPartitionReassignmentsResponse(
                throttle_time_ms=0, error_code=code, error_message=None, responses=[]
            ),
        )

    def list_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> Generator[None, None, ListPartitionReassignmentsResponse]:
        """The moves under way, in steps."""
        if not self.is_active:
            return ListPartitionReassignmentsResponse(
                throttle_time_ms=0, error_code=ErrorCode.NOT_CONTROLLER, error_message=None, topics=[]
            )
        return (yield from list_reassignments(self._machine.state, request))

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

    async def update_features(self, updates: Sequence[features.Update], validate_only: bool) -> list[KafkaError | None]:
        """Change what the brokers do together; of each update what it was refused for. Raises KafkaError for all."""
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        outcomes: list[KafkaError | None] = []

        async def change(levels: dict[str, int]) -> Mapping[str, int]:
            brokers = (await self._zookeeper.brokers()).values()
            outcomes.clear()
            after: Mapping[str, int] = levels
            for update in updates:
                try:
                    after = features.updated(after, update, brokers)
                    outcomes.append(None)
                except KafkaError as error:
                    outcomes.append(error)
            return levels if validate_only else after

        try:
            await self._zookeeper.update_features(change)
        except (ZooKeeperError, MalformedZnode) as error:
            raise KafkaError(ErrorCode.FEATURE_UPDATE_FAILED, str(error)) from error
        return outcomes

    def _refused(self, request: AllocateProducerIdsRequest) -> ErrorCode | None:
        if not self.is_active:
            return ErrorCode.NOT_CONTROLLER
        broker = self._machine.state.brokers.get(request.broker_id)
        if broker is None:
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        return None if broker.epoch == request.broker_epoch else ErrorCode.STALE_BROKER_EPOCH


def _producer_ids(code: ErrorCode, first: int = 0, count: int = 0) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=code, producer_id_start=first, producer_id_len=count
    )

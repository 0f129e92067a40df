"""What handlers are answered while there is no controller here, and when its term ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from kbroker.controller import events
from kbroker.controller.api_calls import ApiCalls
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.machine import Machine
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kbroker.protocol.messages.replication import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
)
from kbroker.replica.turns import at_once

ALTER = AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=[])

ALTERED = AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=[])


def calls(active: bool, told: list[events.Event]) -> ApiCalls:
    machine = Machine(1, ControllerConfig(), lambda: bytes(16))
    return ApiCalls(machine, cast(ZooKeeper, None), lambda: active, told.append)


async def test_elsewhere_everything_is_refused_as_not_the_controller() -> None:
    here = calls(False, [])
    topics = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
    elected = (await here.elect_leaders(ElectLeadersRequest(election_type=0, topic_partitions=topics))).response
    answers: list[Any] = [
        await here.alter_partition(ALTER, 3),
        await here.alter_reassignments(AlterPartitionReassignmentsRequest(topics=[])),
        at_once(here.list_reassignments(ListPartitionReassignmentsRequest(timeout_ms=1, topics=None))),
        await here.allocate_producer_ids(AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)),
        elected,
        elected.replica_election_results[0].partition_result[0],
    ]
    assert {answer.error_code for answer in answers} == {ErrorCode.NOT_CONTROLLER}


async def test_who_waits_when_the_term_ends_is_told_so() -> None:
    told: list[events.Event] = []
    here = calls(True, told)
    waiting = asyncio.create_task(here.alter_partition(ALTER, 3))
    await asyncio.sleep(0)
    assert isinstance(told[0], events.AlterPartitionCalled)
    here.end()
    assert (await waiting).error_code == ErrorCode.NOT_CONTROLLER


async def test_who_asked_for_what_failed_is_told_so() -> None:
    told: list[events.Event] = []
    here = calls(True, told)
    shutdown = ControlledShutdownRequest(broker_id=1, broker_epoch=1)
    waiting = [asyncio.create_task(here.serve(each, 3)) for each in (ALTER, shutdown)]
    await asyncio.sleep(0)
    for event in told:
        here.fail(event.call)  # type: ignore[union-attr]
    assert [(await each).error_code for each in waiting] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2


async def test_an_answer_to_who_has_gone_is_dropped() -> None:
    told: list[events.Event] = []
    here = calls(True, told)
    gone, waiting = (asyncio.create_task(here.alter_partition(ALTER, 3)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    for event in told:
        here.answer(event.call, ALTERED)  # type: ignore[union-attr]
    assert await waiting is ALTERED

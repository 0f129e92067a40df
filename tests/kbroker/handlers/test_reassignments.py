"""What tools and brokers ask of the controller, on a real broker."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.controller.admin_elections import ElectionsHeld
from kbroker.controller.znodes import TopicPartition
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.reassignments import elect_leaders
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
)
from kbroker.protocol.messages.replication import (
    AlterPartitionRequest,
    ControlledShutdownRequest,
    UpdateMetadataRequest,
)
from tests.kbroker.asking import Ask
from tests.kbroker.handlers.test_topics import create, topic


async def test_no_election_is_needed_where_the_preferred_replica_leads(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    wanted = [ElectLeadersRequest.TopicPartitions(topic=topic_name, partitions=[0])]
    answer = await ask(ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=5000), 2)
    result = answer.replica_election_results[0].partition_result[0]
    assert result.error_code is ErrorCode.ELECTION_NOT_NEEDED


async def test_a_reassignment_to_a_dead_broker_is_refused(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[7])
    wanted = [AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic_name, partitions=[partition])]
    answer = await ask(AlterPartitionReassignmentsRequest(topics=wanted, timeout_ms=5000), 0)
    assert answer.responses[0].partitions[0].error_code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_nothing_is_being_reassigned(ask: Ask) -> None:
    answer = await ask(ListPartitionReassignmentsRequest(topics=None, timeout_ms=5000), 0)
    assert (answer.error_code, list(answer.topics)) == (ErrorCode.NONE, [])


async def test_isr_changes_of_a_stale_broker_are_refused(ask: Ask) -> None:
    answer = await ask(AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=[]), 3)
    assert answer.error_code is ErrorCode.STALE_BROKER_EPOCH


async def test_a_stale_broker_cannot_be_shut_down(ask: Ask) -> None:
    answer = await ask(ControlledShutdownRequest(broker_id=1, broker_epoch=1), 3)
    assert answer.error_code is ErrorCode.STALE_BROKER_EPOCH


def led_in_epoch(epoch: int) -> UpdateMetadataRequest:
    """What the controller tells of the only partition, whose leaders are all live."""
    request = UpdateMetadataRequest
    brokers = [request.UpdateMetadataBroker(id=each, rack=None, endpoints=[]) for each in (1, 2)]
    state = request.UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=2 - epoch % 2,
        leader_epoch=epoch,
        isr=[1, 2],
        zk_version=epoch,
        replicas=[1, 2],
        offline_replicas=[],
    )
    topic = request.UpdateMetadataTopicState(topic_name="t", topic_id=bytes(15) + b"1", partition_states=[state])
    return request(controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic], live_brokers=brokers)


@pytest.mark.parametrize(
    ("shown", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.NONE), (4, ErrorCode.REQUEST_TIMED_OUT)]
)
async def test_an_election_is_answered_when_its_own_leader_is_known(shown: int, code: ErrorCode) -> None:
    metadata = MetadataCache()
    metadata.update(led_in_epoch(3))

    async def elect(_: Any) -> ElectionsHeld:
        result = ElectLeadersResponse.PartitionResult(partition_id=0, error_code=ErrorCode.NONE)
        results = [ElectLeadersResponse.ReplicaElectionResult(topic="t", partition_result=[result])]
        return ElectionsHeld(ElectLeadersResponse(replica_election_results=results), {TopicPartition("t", 0): 5})

    services = SimpleNamespace(controller=SimpleNamespace(elect_leaders=elect), metadata=metadata)
    request = ElectLeadersRequest(topic_partitions=None, timeout_ms=100 if code else 10_000)
    asked = asyncio.create_task(elect_leaders(cast(Services, services), cast(RequestContext, None), request))
    await asyncio.sleep(0.02)
    assert not asked.done()
    metadata.update(led_in_epoch(shown))
    answer = await asked
    assert answer.replica_election_results[0].partition_result[0].error_code is code

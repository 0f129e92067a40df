"""What tools and brokers ask of the controller, on a real broker."""

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kbroker.protocol.messages.replication import AlterPartitionRequest, ControlledShutdownRequest
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

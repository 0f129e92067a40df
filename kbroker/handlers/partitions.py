"""CreatePartitions: more partitions for topics that exist."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kbroker.cluster.topic_creation import CreationLimit, broker_racks, wait_for_leaders
from kbroker.controller.placement import continue_assignment
from kbroker.controller.wording import few
from kbroker.controller.znode_operations import BadVersion, NoNode, TooLarge, ZooKeeperError
from kbroker.controller.znodes import ReplicaAssignment, TopicAssignment
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import ALTER, controller_first, on_topics, repeated, require_controller
from kbroker.handlers.mutations import Mutations
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsResponse
from kbroker.replica.turns import Turn, only_waits

WRITE_ATTEMPTS = 10
FIRST_STRICT_VERSION = 3
Result = CreatePartitionsResponse.CreatePartitionsTopicResult


@handles(CreatePartitionsRequest, controller_first, on_topics(ALTER, leaving=repeated()))
async def create_partitions(
    services: Services, ctx: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions, or only check; answers when all of them have a leader, or in time with code 7."""
    require_controller(services)
    times = Counter(topic.name for topic in request.topics)
    results: dict[str, Result] = {}
    counts: dict[str, int] = {}
    limit, turn = CreationLimit(services.config), Turn()
    mutations = Mutations(services, ctx, FIRST_STRICT_VERSION)
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
            await _extend(services, topic, limit, None if request.validate_only else mutations)
            counts[topic.name] = topic.count
            results[topic.name] = Result(name=topic.name, error_code=ErrorCode.NONE)
        except KafkaError as error:
            results[topic.name] = Result(name=topic.name, error_code=error.code, error_message=error.message or None)
        await turn.end_if_over()
    if not request.validate_only:
        only_waits()
        for name in await wait_for_leaders(services.metadata, counts, request.timeout_ms):
            results[name] = Result(name=name, error_code=ErrorCode.REQUEST_TIMED_OUT)
    return CreatePartitionsResponse(throttle_time_ms=mutations.delay_ms, results=list(results.values()))


async def _extend(
    services: Services,
    wanted: CreatePartitionsRequest.CreatePartitionsTopic,
    limit: CreationLimit,
    mutations: Mutations | None,
) -> None:
    """Read the topic, add to it, write it; again when somebody else, the controller perhaps, wrote it meanwhile.

    Without `mutations` it is only checked.
    """
    try:
        for attempt in range(WRITE_ATTEMPTS):
            present, extended = await _extended(services, wanted, limit)
            if mutations is None:
                return
            if not attempt:
                mutations.take(len(extended.partitions) - present)
            with contextlib.suppress(BadVersion):
                await services.zookeeper.write_topic_assignment(wanted.name, extended)
                return
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The topic '{wanted.name}' is being changed by others.")
    except NoNode:
        text = f"The topic '{wanted.name}' does not exist."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text) from None
    except TooLarge as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The topic does not fit into ZooKeeper: {error}.") from error
    except ZooKeeperError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error}") from error


async def _extended(
    services: Services, wanted: CreatePartitionsRequest.CreatePartitionsTopic, limit: CreationLimit
) -> tuple[int, TopicAssignment]:
    """How many partitions there are, and the topic with the new ones; raises KafkaError when they cannot be."""
    found = await services.zookeeper.read_topics([wanted.name])
    if wanted.name in await services.zookeeper.topics_to_delete():
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
    if wanted.name not in found:
        text = f"The topic '{wanted.name}' does not exist."
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    topic = found[wanted.name]
    if any(partition.is_being_reassigned for partition in topic.partitions.values()):
        text = f"A partition reassignment is in progress for the topic '{wanted.name}'."
        raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, text)
    added = {number: ReplicaAssignment(tuple(each)) for number, each in _added(services, topic, wanted, limit).items()}
    return len(topic.partitions), replace(topic, partitions=topic.partitions | added)


def _added(
    services: Services,
    topic: TopicAssignment,
    wanted: CreatePartitionsRequest.CreatePartitionsTopic,
    limit: CreationLimit,
) -> dict[int, list[int]]:
    """Replicas of the new partitions; raises KafkaError when they cannot be."""
    present = len(topic.partitions)
    more = wanted.count - present
    if more < 0:
        text = f"Topic currently has {present} partitions, which is higher than the requested {wanted.count}."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    if more == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partitions.")
    limit.take(wanted.count, more * len(topic.partitions[0].replicas))
    existing = {number: list(partition.replicas) for number, partition in topic.partitions.items()}
    if wanted.assignments is None:
        return continue_assignment(broker_racks(services.metadata), existing, more)
    given = [list(assignment.broker_ids) for assignment in wanted.assignments]
    _check_given(services, given, more, len(existing[0]))
    return {present + number: replicas for number, replicas in enumerate(given)}


def _check_given(services: Services, given: Sequence[Sequence[int]], more: int, factor: int) -> None:
    problem = None
    unknown = sorted({replica for replicas in given for replica in replicas} - services.metadata.brokers.keys())
    if unknown:
        problem = f"Unknown broker(s) in replica assignment: {few(unknown)}."
    elif len(given) != more:
        problem = f"Increasing the number of partitions by {more} but {len(given)} assignments provided."
    else:
        for replicas in given:
            if len(set(replicas)) != len(replicas):
                problem = f"Duplicate brokers not allowed in replica assignment: {few(replicas)}."
            elif len(replicas) != factor:
                problem = (
                    "Inconsistent replication factor between partitions, partition 0 has "
                    f"{factor} while a new one has {len(replicas)}."
                )
    if problem:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)

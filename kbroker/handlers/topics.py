"""CreateTopics and DeleteTopics: served by the controller's broker, carried out through ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence

from kbroker.cluster.topic_creation import CreationLimit, TopicRequest, plan_topic, wait_for_leaders, write_topics
from kbroker.cluster.topic_names import CLUSTER_METADATA_TOPIC
from kbroker.config.description import describe_topic
from kbroker.controller.broker_store import NewTopic
from kbroker.controller.znode_operations import NoNode, ZooKeeperError
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import (
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    TOPIC,
    Asked,
    Steps,
    controller_first,
    if_on_cluster,
    on_topics,
    repeated,
    require_controller,
)
from kbroker.handlers.mutations import Mutations
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.replica.turns import Turn, only_waits

LAST_ZNODES_S = 1.0
FIRST_ID_VERSION = 6
"""Of DeleteTopics."""
FIRST_STRICT_CREATION, FIRST_STRICT_DELETION = 6, 5

CreatedTopic = CreateTopicsResponse.CreatableTopicResult
DeletedTopic = DeleteTopicsResponse.DeletableTopicResult


def _hide_configs(asked: Asked) -> Steps:
    """Who may not see a topic's configuration does not see in the answer, either, how the topic was made."""
    hidden = set()
    for topic in asked.request.topics:
        if not asked.could(DESCRIBE_CONFIGS, TOPIC, topic.name):
            hidden.add(topic.name)
        yield
    if not hidden:
        return

    def hide(answer: CreateTopicsResponse) -> None:
        for topic in answer.topics:
            if topic.name in hidden:
                topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                topic.configs, topic.topic_id = [], ZERO_UUID
                topic.num_partitions = topic.replication_factor = -1

    asked.finish(hide)


@handles(
    CreateTopicsRequest,
    controller_first,
    _hide_configs,
    on_topics(CREATE, unless=if_on_cluster(CREATE), leaving=repeated(), message="Authorization failed."),
)
async def create_topics(services: Services, ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics, or only check them; answers when every new partition has a leader, or in time with code 7."""
    require_controller(services)
    results: dict[str, CreatedTopic] = {}
    mutations = Mutations(services, ctx, FIRST_STRICT_CREATION)
    planned = await _plan(services, request, results, mutations)
    if request.validate_only:
        turn = Turn()
        for topic in planned:
            results[topic.name] = _created(services, ctx, topic, ErrorCode.NONE)
            results[topic.name].topic_id = ZERO_UUID
            await turn.end_if_over()
    elif planned:
        await _create(services, ctx, planned, request.timeout_ms, results)
    topics = [results[topic.name] for topic in request.topics]
    return CreateTopicsResponse(throttle_time_ms=mutations.delay_ms, topics=topics)


async def _plan(
    services: Services, request: CreateTopicsRequest, results: dict[str, CreatedTopic], mutations: Mutations
) -> list[NewTopic]:
    """Check each topic; those which cannot be get their answer at once."""
    times = Counter(topic.name for topic in request.topics)
    planned = []
    limit, turn = CreationLimit(services.config, services.metadata), Turn()
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
            if topic.name == CLUSTER_METADATA_TOPIC:
                text = f"Creation of internal topic {topic.name} is prohibited."
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)
            # No broker knows it any more while its deletion waits for one that is away.
            if services.controller.state.is_being_deleted(topic.name):
                text = f"Topic '{topic.name}' is marked for deletion."
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, text)
            new = plan_topic(services, _wanted(topic), limit)
            if not request.validate_only:
                mutations.take(len(new.assignment))
            planned.append(new)
        except KafkaError as error:
            results[topic.name] = CreatedTopic(
                name=topic.name, error_code=error.code, error_message=error.message or None
            )
        await turn.end_if_over()
    return planned


def _wanted(topic: CreateTopicsRequest.CreatableTopic) -> TopicRequest:
    assignment = {entry.partition_index: list(entry.broker_ids) for entry in topic.assignments}
    if len(assignment) < len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition is assigned more than once")
    return TopicRequest(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignment or None,
        {entry.name: entry.value for entry in topic.configs},
    )


async def _create(
    services: Services,
    ctx: RequestContext,
    planned: Sequence[NewTopic],
    timeout_ms: int,
    results: dict[str, CreatedTopic],
) -> None:
    errors = await write_topics(services, planned)
    only_waits()
    counts = {topic.name: len(topic.assignment) for topic in planned if errors[topic.name] is None}
    late = await wait_for_leaders(services.metadata, counts, timeout_ms)
    turn = Turn()
    for topic in planned:
        error = errors[topic.name]
        if error is not None:
            results[topic.name] = CreatedTopic(
                name=topic.name, error_code=error.code, error_message=error.message or None
            )
        else:
            code = ErrorCode.REQUEST_TIMED_OUT if topic.name in late else ErrorCode.NONE
            results[topic.name] = _created(services, ctx, topic, code)
        await turn.end_if_over()


def _created(services: Services, ctx: RequestContext, topic: NewTopic, code: ErrorCode) -> CreatedTopic:
    if ctx.api_version < 5 or code is not ErrorCode.NONE:
        return CreatedTopic(name=topic.name, error_code=code, topic_id=topic.topic_id)
    return CreatedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=code,
        num_partitions=len(topic.assignment),
        replication_factor=len(next(iter(topic.assignment.values()))),
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in describe_topic(services.configs, topic.config)
        ],
    )


def topics_told(asked: Asked) -> None:
    """Who asks a controller that has just started, and has been told of no topic yet, asks again."""
    _require_topics(asked.services)


def _require_topics(services: Services) -> None:
    if not services.metadata.introduced.is_set():
        raise KafkaError(ErrorCode.NOT_CONTROLLER)


def _may_delete(asked: Asked) -> Steps:
    """Who asks by id learns the topic's name only where the topic may be known; an id nobody has is unknown to all.

    The handler does not see such an id: it may be a topic's by then, about which nobody was asked.
    """
    by_name = asked.version < FIRST_ID_VERSION
    field = "topic_names" if by_name else "topics"
    cache = asked.services.metadata
    refused, unknown = [], []
    known: dict[bytes, str] = {}
    for wanted in getattr(asked.request, field):
        yield
        if by_name or wanted.name is not None:
            if not asked.may(DELETE, TOPIC, wanted if by_name else wanted.name):
                refused.append(wanted)
            continue
        topic = cache.topic_by_id(wanted.topic_id)
        if topic is None:
            unknown.append(wanted)
        elif not asked.may(DESCRIBE, TOPIC, topic.name):
            refused.append(wanted)
        elif not asked.may(DELETE, TOPIC, topic.name):
            refused.append(wanted)
            known[bytes(wanted.topic_id)] = topic.name

    def name(answer: DeleteTopicsResponse) -> None:
        for result in answer.responses:
            if result.name is None:
                result.name = known.get(bytes(result.topic_id))

    if refused:
        asked.take_out(field, refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if unknown:
        asked.take_out(field, unknown, ErrorCode.UNKNOWN_TOPIC_ID)
    if known:
        asked.finish(name)


@handles(DeleteTopicsRequest, controller_first, topics_told, _may_delete)
async def delete_topics(services: Services, ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Mark topics for deletion; answers when they are gone from the metadata cache, or in time with code 7."""
    require_controller(services)
    _require_topics(services)
    if not services.config.delete_topic_enable:
        old = ctx.api_version < 3
        raise KafkaError(ErrorCode.INVALID_REQUEST if old else ErrorCode.TOPIC_DELETION_DISABLED)
    results, turn = [], Turn()
    for name, topic_id in _asked(ctx, request):
        results.append(_find(services, name, topic_id))
        await turn.end_if_over()
    marked = set()
    mutations = Mutations(services, ctx, FIRST_STRICT_DELETION)
    for result in results:
        await turn.end_if_over()
        if result.error_code is ErrorCode.NONE and result.name is not None:
            error = await _mark(services, result.name, mutations)
            if error is None:
                marked.add(result.name)
            else:
                result.error_code, result.error_message = error.code, error.message or None
    only_waits()
    late = await _wait_until_gone(services, marked, request.timeout_ms)
    for result in results:
        if result.name in late and result.error_code is ErrorCode.NONE:
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
    return DeleteTopicsResponse(throttle_time_ms=mutations.delay_ms, responses=results)


def _asked(ctx: RequestContext, request: DeleteTopicsRequest) -> Iterable[tuple[str | None, bytes]]:
    """Names, or ids, each once."""
    if ctx.api_version < FIRST_ID_VERSION:
        return ((name, ZERO_UUID) for name in dict.fromkeys(request.topic_names))
    for topic in request.topics:
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic name and topic ID can not both be specified.")
    return dict.fromkeys((topic.name, bytes(topic.topic_id)) for topic in request.topics)


def _find(services: Services, name: str | None, topic_id: bytes) -> DeletedTopic:
    cache = services.metadata
    if name is None:
        topic = cache.topic_by_id(topic_id)
        if topic is None:
            return DeletedTopic(name=None, topic_id=topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    else:
        topic = cache.topics.get(name)
        if topic is None:
            return DeletedTopic(name=name, topic_id=topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Kafka tells the id only to those who asked by it.
    return DeletedTopic(name=topic.name, topic_id=topic_id, error_code=ErrorCode.NONE)


async def _mark(services: Services, name: str, mutations: Mutations) -> KafkaError | None:
    topic = services.metadata.topics.get(name)
    try:
        mutations.take(0 if topic is None else len(topic.partitions))
        await services.zookeeper.mark_topic_deleted(name)
    except KafkaError as error:
        return error
    except NoNode:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except ZooKeeperError as error:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error}")
    return None


async def _wait_until_gone(services: Services, names: set[str], timeout_ms: int) -> set[str]:
    """Return the topics that are still there after the time."""
    cache = services.metadata
    if timeout_ms <= 0:
        return names
    late = await cache.wait_for_all(names, lambda name: name not in cache.topics, timeout_ms / 1000)
    if names and not late:
        await _wait_for_znodes(services, names, min(timeout_ms / 1000, LAST_ZNODES_S))
    return {name for name in names if name in cache.topics}


async def _wait_for_znodes(services: Services, names: set[str], seconds: float) -> None:
    """Brokers forget a topic before its last znode goes: give it a moment, so that it can be made again at once."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            pause = 0.002
            while not names.isdisjoint(await services.zookeeper.topics_to_delete()):
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.1)

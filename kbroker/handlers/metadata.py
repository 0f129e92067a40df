"""Metadata: brokers, topics, partitions and their leaders, as the controller last told this broker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable
from typing import Any

from kbroker.cluster.metadata_cache import BrokerInfo, PartitionInfo, TopicInfo
from kbroker.cluster.topic_creation import create_missing_topics
from kbroker.cluster.topic_names import INTERNAL_TOPICS, name_problem
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.protocol.primitives import ZERO_UUID

NO_LEADER = -1
INTRODUCTION_S = 10.0
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""What may be done with a topic where no authorizer says otherwise: a bit per AclOperation code."""
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


@handles(MetadataRequest)
def metadata(services: Services, ctx: RequestContext, request: MetadataRequest) -> Any:
    """Answer from the metadata cache; topics that do not exist are created first where that is wanted and allowed."""
    if not services.metadata.introduced.is_set():
        return _answer_when_introduced(services, ctx, request)
    topics = _wanted_topics(services, ctx, request)
    missing = [
        topic.name
        for topic in topics
        if topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name is not None
    ]
    may_create = request.allow_auto_topic_creation and services.config.auto_create_topics_enable
    if missing and may_create:
        return _create_and_answer(services, ctx, request, topics, missing)
    return _answer(services, ctx, request, topics)


async def _answer_when_introduced(services: Services, ctx: RequestContext, request: MetadataRequest) -> Any:
    """A client that comes back to a restarted broker must not hear that its topics are gone."""
    try:
        async with asyncio.timeout(INTRODUCTION_S):
            await services.metadata.introduced.wait()
    except TimeoutError:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker knows of no topic yet") from None
    answer = metadata(services, ctx, request)
    return await answer if inspect.isawaitable(answer) else answer


async def _create_and_answer(
    services: Services,
    ctx: RequestContext,
    request: MetadataRequest,
    topics: list[MetadataResponse.MetadataResponseTopic],
    missing: list[str],
) -> MetadataResponse:
    errors = await create_missing_topics(services, missing)
    known = [topic for topic in topics if topic.name not in errors]
    known += [_topic_error(errors[name], name, internal=name in INTERNAL_TOPICS) for name in missing if name in errors]
    return _answer(services, ctx, request, known)


def _answer(
    services: Services,
    ctx: RequestContext,
    request: MetadataRequest,
    topics: list[MetadataResponse.MetadataResponseTopic],
) -> MetadataResponse:
    cache = services.metadata
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code is not ErrorCode.UNKNOWN_TOPIC_ID:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    answer = MetadataResponse(
        brokers=[broker for info in cache.brokers.values() for broker in _broker(info, ctx.listener)],
        cluster_id=services.cluster_id,
        controller_id=NO_LEADER if cache.controller_id is None else cache.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer


def _broker(info: BrokerInfo, listener: str) -> Iterable[MetadataResponse.MetadataResponseBroker]:
    endpoint = info.endpoints.get(listener)
    if endpoint is not None:
        yield MetadataResponse.MetadataResponseBroker(
            node_id=info.id, host=endpoint[0], port=endpoint[1], rack=info.rack
        )


def _wanted_topics(
    services: Services, ctx: RequestContext, request: MetadataRequest
) -> list[MetadataResponse.MetadataResponseTopic]:
    cache = services.metadata
    describe = _TopicDescriber(services, ctx, request)
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        return [describe(topic) for topic in cache.topics.values()]
    answers = []
    asked = set()
    for wanted in request.topics:
        by_id = wanted.topic_id != ZERO_UUID
        asked_for = bytes(wanted.topic_id) if by_id else wanted.name
        if asked_for in asked:
            continue
        asked.add(asked_for)
        if ctx.api_version < 12 and (by_id or wanted.name is None):
            text = f"Topic IDs are not supported in requests for version {ctx.api_version}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        found = cache.topic_by_id(wanted.topic_id) if by_id else cache.topics.get(wanted.name or "")
        if found is not None:
            answers.append(describe(found))
        elif by_id:
            answers.append(_topic_error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id=wanted.topic_id))
        else:
            name = wanted.name or ""
            code = ErrorCode.INVALID_TOPIC_EXCEPTION if name_problem(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(_topic_error(code, name, internal=name in INTERNAL_TOPICS))
    return answers


def _topic_error(
    code: ErrorCode, name: str | None, *, topic_id: bytes = ZERO_UUID, internal: bool = False
) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=internal, partitions=[]
    )


class _TopicDescriber:
    """Describes topics for one request: what depends on its version and listener is looked up once."""

    def __init__(self, services: Services, ctx: RequestContext, request: MetadataRequest) -> None:
        self.version = ctx.api_version
        brokers = services.metadata.brokers
        self.alive = brokers.keys()
        self.reachable = {broker.id for broker in brokers.values() if ctx.listener in broker.endpoints}

    def __call__(self, topic: TopicInfo) -> MetadataResponse.MetadataResponseTopic:
        return MetadataResponse.MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[self.partition(partition) for partition in topic.partitions.values()],
        )

    def partition(self, partition: PartitionInfo) -> MetadataResponse.MetadataResponsePartition:
        """Describe one partition; version 0 leaves out brokers that cannot be reached and says so by code 9."""
        replicas, isr = list(partition.replicas), list(partition.isr)
        code, leader = ErrorCode.NONE, partition.leader
        if self.version == 0:
            replicas = [replica for replica in replicas if replica in self.reachable]
            isr = [replica for replica in isr if replica in self.reachable]
            if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
                code = ErrorCode.REPLICA_NOT_AVAILABLE
        if leader not in self.reachable:
            known_elsewhere = leader in self.alive and self.version >= 6
            code = ErrorCode.LISTENER_NOT_FOUND if known_elsewhere else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        return MetadataResponse.MetadataResponsePartition(
            error_code=code,
            partition_index=partition.partition,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=list(partition.offline_replicas),
        )

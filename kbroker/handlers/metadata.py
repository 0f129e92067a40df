"""Metadata: brokers, topics, partitions and their leaders, as the controller last told this broker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Generator, Iterable
from typing import Any

from kbroker.cluster.metadata_cache import NO_LEADER, BrokerInfo, TopicInfo
from kbroker.cluster.topic_creation import create_missing_topics
from kbroker.cluster.topic_names import INTERNAL_TOPICS, name_problem
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import CLUSTER, CREATE, DESCRIBE, TOPIC, inside
from kbroker.handlers.registry import handles
from kbroker.handlers.topic_descriptions import TopicDescriptions, descriptions_in
from kbroker.protocol.codec import EncodedArray, encode_elements
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.replica.turns import Turn, in_turns

INTRODUCTION_S = 10.0


def cluster_operations(ctx: RequestContext, api: str) -> int:
    """Return what who asks may do with the cluster, a bit per operation; who may not describe it learns nothing."""
    return ctx.authority.operations(CLUSTER) if ctx.authority.may(DESCRIBE, CLUSTER, api=api) else 0


@handles(MetadataRequest, inside("topics that may not be described are left out, or look as if there were none"))
def metadata(services: Services, ctx: RequestContext, request: MetadataRequest) -> Any:
    """Answer from the metadata cache; topics that do not exist are created first where that is wanted and allowed."""
    if not services.metadata.introduced.is_set():
        return _answer_when_introduced(services, ctx, request)
    described = descriptions_in(
        services.metadata, ctx.api_version, ctx.listener, bool(request.include_topic_authorized_operations)
    )
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
        ctx.ends_with_connection = True  # nothing is created for it
        return in_turns(_all_topics(services, ctx, request, described))
    return in_turns(_wanted_topics(services, ctx, request, described))


async def _answer_when_introduced(services: Services, ctx: RequestContext, request: MetadataRequest) -> Any:
    """A client that comes back to a restarted broker must not hear that its topics are gone."""
    try:
        async with asyncio.timeout(INTRODUCTION_S):
            await services.metadata.introduced.wait()
    except TimeoutError:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker knows of no topic yet") from None
    answer = metadata(services, ctx, request)
    return await answer if inspect.isawaitable(answer) else answer


def _all_topics(
    services: Services, ctx: RequestContext, request: MetadataRequest, described: TopicDescriptions
) -> Generator[None, None, MetadataResponse]:
    if not ctx.authority.is_limited:
        return _answer(services, ctx, request, (yield from described.of_all()))
    topics = []
    for topic in list(services.metadata.topics.values()):
        if ctx.authority.could(DESCRIBE, TOPIC, topic.name, "Metadata"):
            topics.append(_described(ctx, request, described, topic))
        yield
    return _answer(services, ctx, request, EncodedArray(len(topics), [b"".join(topics)]))


def _described(ctx: RequestContext, request: MetadataRequest, described: TopicDescriptions, topic: TopicInfo) -> bytes:
    if request.include_topic_authorized_operations and ctx.authority.is_limited:
        return described.with_operations(topic, ctx.authority.operations(TOPIC, topic.name))
    return described.of(topic)


def _wanted_topics(
    services: Services, ctx: RequestContext, request: MetadataRequest, described: TopicDescriptions
) -> Generator[None, None, MetadataResponse | Awaitable[MetadataResponse]]:
    cache = services.metadata
    found: dict[str | bytes, bytes] = {}
    missing = []
    for wanted in request.topics or ():
        by_id = wanted.topic_id != ZERO_UUID
        asked_for: str | bytes = bytes(wanted.topic_id) if by_id else wanted.name or ""
        if asked_for in found:
            continue
        if ctx.api_version < 12 and (by_id or wanted.name is None):
            text = f"Topic IDs are not supported in requests for version {ctx.api_version}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        topic = cache.topic_by_id(wanted.topic_id) if by_id else cache.topics.get(wanted.name or "")
        name = wanted.name or "" if topic is None else topic.name
        if (topic is not None or not by_id) and not ctx.authority.may(DESCRIBE, TOPIC, name, "Metadata"):
            found[asked_for] = _refused_topic(ctx, None if by_id else name, wanted.topic_id)
        elif topic is not None:
            found[asked_for] = _described(ctx, request, described, topic)
        elif by_id:
            found[asked_for] = _topic_error(request, ctx, ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        else:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION if name_problem(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            found[asked_for] = _topic_error(request, ctx, code, name)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and wanted.name is not None:
                missing.append(name)
        yield
    if missing and request.allow_auto_topic_creation and services.config.auto_create_topics_enable:
        return _create_and_answer(services, ctx, request, found, missing)
    return _answer(services, ctx, request, EncodedArray(len(found), [b"".join(found.values())]))


async def _create_and_answer(
    services: Services,
    ctx: RequestContext,
    request: MetadataRequest,
    found: dict[str | bytes, bytes],
    missing: list[str],
) -> MetadataResponse:
    authority, turn = ctx.authority, Turn()
    may_create_all = authority.could(CREATE, CLUSTER, api="Metadata")
    wanted = []
    for name in missing:
        if may_create_all or authority.may(CREATE, TOPIC, name, "Metadata"):
            wanted.append(name)
        else:
            found[name] = _refused_topic(ctx, name)
        await turn.end_if_over()
    errors = await create_missing_topics(services, wanted, turn.end_if_over)
    for name, code in errors.items():
        found[name] = _topic_error(request, ctx, code, name)
        await turn.end_if_over()
    return _answer(services, ctx, request, EncodedArray(len(found), [b"".join(found.values())]))


def _answer(services: Services, ctx: RequestContext, request: MetadataRequest, topics: Any) -> MetadataResponse:
    cache = services.metadata
    answer = MetadataResponse(
        brokers=[broker for info in cache.brokers.values() for broker in _broker(info, ctx.listener)],
        cluster_id=services.cluster_id,
        controller_id=NO_LEADER if cache.controller_id is None else cache.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = cluster_operations(ctx, "Metadata")
    return answer


def _broker(info: BrokerInfo, listener: str) -> Iterable[MetadataResponse.MetadataResponseBroker]:
    endpoint = info.endpoints.get(listener)
    if endpoint is not None:
        yield MetadataResponse.MetadataResponseBroker(
            node_id=info.id, host=endpoint[0], port=endpoint[1], rack=info.rack
        )


def _refused_topic(ctx: RequestContext, name: str | None, topic_id: bytes = ZERO_UUID) -> bytes:
    """What may not be described looks the same whether it exists or not."""
    topic = MetadataResponse.MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id, partitions=[]
    )
    return encode_elements([topic], MetadataResponse, ctx.api_version)


def _topic_error(
    request: MetadataRequest, ctx: RequestContext, code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID
) -> bytes:
    topic = MetadataResponse.MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS, partitions=[]
    )
    if request.include_topic_authorized_operations and code is not ErrorCode.UNKNOWN_TOPIC_ID:
        topic.topic_authorized_operations = ctx.authority.operations(TOPIC, name or "")
    return encode_elements([topic], MetadataResponse, ctx.api_version)

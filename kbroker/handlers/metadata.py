"""Metadata: brokers, topics, partitions and their leaders, as the controller last told this broker."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Generator, Iterable
from typing import Any

from kbroker.cluster.metadata_cache import NO_LEADER, BrokerInfo
from kbroker.cluster.topic_creation import create_missing_topics
from kbroker.cluster.topic_names import INTERNAL_TOPICS, name_problem
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.registry import handles
from kbroker.handlers.topic_descriptions import TOPIC_OPERATIONS, TopicDescriptions, descriptions_in
from kbroker.protocol.codec import EncodedArray, encode_elements
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.replica.turns import in_turns

INTRODUCTION_S = 10.0
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


@handles(MetadataRequest)
def metadata(services: Services, ctx: RequestContext, request: MetadataRequest) -> Any:
    """Answer from the metadata cache; topics that do not exist are created first where that is wanted and allowed."""
    if not services.metadata.introduced.is_set():
        return _answer_when_introduced(services, ctx, request)
    described = descriptions_in(
        services.metadata, ctx.api_version, ctx.listener, bool(request.include_topic_authorized_operations)
    )
    if request.topics is None or (ctx.api_version == 0 and not request.topics):
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
    topics = yield from described.of_all()
    return _answer(services, ctx, request, topics)


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
        if topic is not None:
            found[asked_for] = described.of(topic)
        elif by_id:
            found[asked_for] = _topic_error(request, ctx, ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id)
        else:
            name = wanted.name or ""
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
    errors = await create_missing_topics(services, missing)
    for name, code in errors.items():
        found[name] = _topic_error(request, ctx, code, name)
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
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer


def _broker(info: BrokerInfo, listener: str) -> Iterable[MetadataResponse.MetadataResponseBroker]:
    endpoint = info.endpoints.get(listener)
    if endpoint is not None:
        yield MetadataResponse.MetadataResponseBroker(
            node_id=info.id, host=endpoint[0], port=endpoint[1], rack=info.rack
        )


def _topic_error(
    request: MetadataRequest, ctx: RequestContext, code: ErrorCode, name: str | None, topic_id: bytes = ZERO_UUID
) -> bytes:
    topic = MetadataResponse.MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS, partitions=[]
    )
    if request.include_topic_authorized_operations and code is not ErrorCode.UNKNOWN_TOPIC_ID:
        topic.topic_authorized_operations = TOPIC_OPERATIONS
    return encode_elements([topic], MetadataResponse, ctx.api_version)

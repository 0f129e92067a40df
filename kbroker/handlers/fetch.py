"""Fetch: send what is in the log, from the file to the socket; wait where there is too little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Generator
from functools import partial

from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.demands import CLUSTER, CLUSTER_ACTION, READ, TOPIC, inside
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.replica.fetch_sessions import NEVER_SEEN, FetchContext, Wanted
from kbroker.replica.fetching import MENDING, Answers, FetchParameters
from kbroker.replica.turns import in_turns
from kbroker.security.authorizer import right
from kbroker.security.quotas import FETCHED

READ_TOPIC = right(READ, TOPIC)
FIRST_TOPIC_ID_VERSION = 13
FIRST_LEADER_HINT_VERSION = 16

TopicResponse = FetchResponse.FetchableTopicResponse


@handles(FetchRequest, inside("a session holds topics that its requests do not name"))
def fetch(services: Services, ctx: RequestContext, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    """Read each partition of the request's session; answer at once, or when there is enough (KIP-227)."""
    ctx.ends_with_connection = True
    if ctx.is_large:
        return in_turns(_fetch_many(services, ctx, request))
    return _fetch(services, ctx, request, None)


def _fetch_many(
    services: Services, ctx: RequestContext, request: FetchRequest
) -> Generator[None, None, FetchResponse | Awaitable[FetchResponse]]:
    wanted = yield from services.replicas.wanted(request, ctx.api_version)
    return _fetch(services, ctx, request, wanted)


def _fetch(
    services: Services, ctx: RequestContext, request: FetchRequest, wanted: Wanted | None
) -> FetchResponse | Awaitable[FetchResponse]:
    version = ctx.api_version
    try:
        now = services.replicas.steady()
        context = services.replicas.open_session(request, version, now, wanted)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    if context.session is not None:
        ctx.withheld = partial(services.replicas.sessions.withheld, context)
    parameters = FetchParameters(request, version, ctx.listener, now, services.config.fetch_max_bytes)
    if ctx.authority.is_limited:
        _limit(ctx, context, parameters)
    quotas = services.quotas
    if quotas is not None and quotas.quotas.is_used and not parameters.is_follower:
        most = quotas.quotas.most_at_once(FETCHED, ctx.user, ctx.client_id or "")
        if most is not None:
            parameters.max_bytes = min(parameters.max_bytes, most)
            parameters.min_bytes = min(parameters.min_bytes, most)
    builder = _Builder(services, ctx, context.session_id)
    answer: FetchResponse | Awaitable[FetchResponse] = services.replicas.fetch(context, parameters, builder)
    return answer


def _limit(ctx: RequestContext, context: FetchContext, parameters: FetchParameters) -> None:
    """Read only what may be read: by a follower all or nothing."""
    authority = ctx.authority
    if parameters.is_follower:
        is_broker = authority.may(CLUSTER_ACTION, CLUSTER, api="Fetch")
        parameters.may_read = lambda topic: is_broker
    elif parameters.replica_id == MENDING and authority.may(CLUSTER_ACTION, CLUSTER, api="Fetch"):
        return  # it may copy everything as a follower, too
    else:
        parameters.readable = authority.granted[READ_TOPIC]
        parameters.may_read = lambda topic: authority.could(READ, TOPIC, topic, "Fetch")
    session = context.session
    if session is not None and session.rules_version != authority.version:
        session.rules_version = authority.version
        for target in context.targets:  # what was allowed may be no more, though there is nothing new to read
            target.seen_changes = NEVER_SEEN


class _Builder:
    """Makes the response of what was read."""

    __slots__ = ("_ctx", "_leaders", "_partitions", "_refused", "_services", "_session_id", "_topics")

    def __init__(self, services: Services, ctx: RequestContext, session_id: int) -> None:
        self._services = services
        self._ctx = ctx
        self._session_id = session_id
        self._topics: dict[bytes | str, TopicResponse] = {}
        self._partitions: dict[bytes | str, list[FetchResponse.PartitionData]] = {}
        self._leaders: set[int] = set()
        self._refused: Counter[str] | None = None
        """Topics that may not be read: how many of their partitions were asked for."""

    def add(self, answers: Answers) -> None:
        """Add what is to be sent."""
        version = self._ctx.api_version
        topics, partitions = self._topics, self._partitions
        for target, answer in answers:
            key = target.topic_id if version >= FIRST_TOPIC_ID_VERSION else target.topic or ""
            listed = partitions.get(key)
            if listed is None:
                listed = partitions[key] = []
                topics[key] = TopicResponse(topic=target.topic or "", topic_id=target.topic_id, partitions=listed)
            listed.append(answer)
            if answer.error_code is not ErrorCode.NONE:
                if answer.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self._refused = self._refused or Counter()
                    self._refused[target.topic or ""] += 1
                if version >= FIRST_LEADER_HINT_VERSION:
                    self._leaders.add(answer.current_leader.leader_id)

    def response(self) -> FetchResponse:
        """Return the response with all that was added."""
        if self._refused:
            for topic, times in self._refused.items():
                self._ctx.authority.may(READ, TOPIC, topic, "Fetch", times)
        response = FetchResponse(
            error_code=ErrorCode.NONE, session_id=self._session_id, responses=list(self._topics.values())
        )
        if self._leaders:
            response.node_endpoints = self._services.metadata.endpoints_of(
                self._leaders, self._ctx.listener, FetchResponse.NodeEndpoint
            )
        return response

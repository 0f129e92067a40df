"""Fetch: send what is in the log, from the file to the socket; wait where there is too little."""

from __future__ import annotations

from collections.abc import Awaitable

from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.registry import handles
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.replica.fetching import Answers, FetchParameters

FIRST_TOPIC_ID_VERSION = 13
FIRST_LEADER_HINT_VERSION = 16

TopicResponse = FetchResponse.FetchableTopicResponse


@handles(FetchRequest)
def fetch(services: Services, ctx: RequestContext, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
    """Read each partition of the request's session; answer at once, or when there is enough (replication.md 4)."""
    version = ctx.api_version
    try:
        context = services.replicas.open_session(request, version, ctx.received_at)
    except KafkaError as error:
        return FetchResponse(error_code=error.code, responses=[])
    parameters = FetchParameters(request, version, ctx.listener, ctx.received_at, services.config.fetch_max_bytes)

    def respond(answers: Answers) -> FetchResponse:
        topics: dict[bytes | str, TopicResponse] = {}
        partitions: dict[bytes | str, list[FetchResponse.PartitionData]] = {}
        leaders: set[int] = set()
        for target, answer in answers:
            key = target.topic_id if version >= FIRST_TOPIC_ID_VERSION else target.topic or ""
            listed = partitions.get(key)
            if listed is None:
                listed = partitions[key] = []
                topics[key] = TopicResponse(topic=target.topic or "", topic_id=target.topic_id, partitions=listed)
            listed.append(answer)
            if answer.error_code is not ErrorCode.NONE and version >= FIRST_LEADER_HINT_VERSION:
                leaders.add(answer.current_leader.leader_id)
        response = FetchResponse(
            error_code=ErrorCode.NONE, session_id=context.session_id, responses=list(topics.values())
        )
        if leaders:
            response.node_endpoints = _endpoints(services, ctx, leaders)
        return response

    ctx.ends_with_connection = True
    answer: FetchResponse | Awaitable[FetchResponse] = services.replicas.fetch(context, parameters, respond)
    return answer


def _endpoints(services: Services, ctx: RequestContext, leaders: set[int]) -> list[FetchResponse.NodeEndpoint]:
    """Where the leaders named in the answer are reached, by the listener of the request (KIP-951)."""
    endpoints = []
    for leader in sorted(leaders):
        found = services.metadata.endpoint(leader, ctx.listener)
        if found is not None:
            rack = services.metadata.brokers[leader].rack
            endpoints.append(FetchResponse.NodeEndpoint(node_id=leader, host=found[0], port=found[1], rack=rack))
    return endpoints

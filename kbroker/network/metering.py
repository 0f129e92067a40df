"""What clients use is counted and, where they have limits, slowed down (KIP-13, KIP-124, KIP-219).

    Produce                bytes of the request, counted when its answer is ready
    a consumer's Fetch     bytes of the answer; when it is too much it is not sent: the answer goes out empty
    all that clients ask   time that the handler worked on it, in percent of one second

The answer says for how long (throttle_time_ms) and goes out at once; for so long the connection is not read. Followers
and what else only brokers send is exempt. So is what comes before a login: strangers may name any client id.
"""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any

from kbroker.network.limits import BROKER_REQUESTS, FETCH, PRODUCE
from kbroker.network.parts import part_size
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import encode_response
from kbroker.protocol.schema import schema_of
from kbroker.security.quotas import FETCHED, PRODUCED, REQUESTED, ClientQuotas

if TYPE_CHECKING:
    from kbroker.handlers.context import RequestContext

ALLOCATE_PRODUCER_IDS = 67
EXEMPT = BROKER_REQUESTS - {ALLOCATE_PRODUCER_IDS}
NOT_A_BROKER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
"""The answer to whoever sends what only brokers send: that is counted as anybody's."""


class Meter:
    """Counts what is asked and answered."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self.quotas = quotas
        self.throttled: Counter[int] = Counter()
        """API key -> requests whose client had to wait after them."""
        self.throttled_ms: Counter[int] = Counter()
        """For how long."""
        self._told_from: dict[int, range] = {}

    def count(self, ctx: RequestContext, request: Any, answer: Any) -> Any:
        """Count a request and its answer (None: there is none); returns the answer that is to be sent, which may be
        emptied, and mutes the connection of a client that has used too much.
        """
        if ctx.connection.login_limits is not None:
            return answer
        is_fetch = ctx.api_key == FETCH
        if is_fetch and is_follower(request):
            return answer
        if self._is_brokers(ctx, answer):
            return answer
        now_ms = monotonic() * 1000
        user, client = ctx.user, ctx.client_id or ""
        delay_ms = 0
        if ctx.api_key == PRODUCE:
            delay_ms = self.quotas.record(PRODUCED, user, client, ctx.request_bytes, now_ms)
        elif is_fetch and self.quotas.counter(FETCHED, user, client) is not None:
            size = sum(part_size(part) for part in encode_response(answer, ctx.api_version, ctx.correlation_id))
            delay_ms = self.quotas.record(FETCHED, user, client, size, now_ms)
            if delay_ms:
                self.quotas.take_back(FETCHED, user, client, size, now_ms)
        if answer is not None:
            used = ctx.busy_ms / 10  # in percent of a second
            delay_ms = max(delay_ms, self.quotas.record(REQUESTED, user, client, used, now_ms))
        if is_fetch and delay_ms:
            if ctx.withheld is not None:
                ctx.withheld(answer)
            answer = emptied(request, answer)
        return self._slowed_down(ctx, answer, delay_ms)

    @staticmethod
    def _is_brokers(ctx: RequestContext, answer: Any) -> bool:
        """Whether the request was one that only brokers send, and a broker's."""
        is_like_it = ctx.api_key in EXEMPT and ctx.connection.takes_brokers
        return is_like_it and getattr(answer, "error_code", None) is not NOT_A_BROKER

    def _slowed_down(self, ctx: RequestContext, answer: Any, delay_ms: int) -> Any:
        if answer is not None and ctx.api_version in self._telling_versions(ctx.api_key):
            delay_ms = max(delay_ms, answer.throttle_time_ms)  # topics' handlers have delays of their own
            answer.throttle_time_ms = delay_ms
        if delay_ms > 0:
            self.throttled[ctx.api_key] += 1
            self.throttled_ms[ctx.api_key] += delay_ms
            ctx.connection.mute(delay_ms / 1000)
        return answer

    def _telling_versions(self, api_key: int) -> range:
        """The versions whose answers have a throttle time."""
        found = self._told_from.get(api_key)
        if found is None:
            response: Any = API_BY_KEY[api_key].response
            fields = [field for field in schema_of(response).fields if field.name == "throttle_time_ms"]
            found = self._told_from[api_key] = range(0)
            if fields:
                found = self._told_from[api_key] = range(fields[0].versions.first, fields[0].versions.last + 1)
        return found


def is_follower(request: Any) -> bool:
    """Whether a Fetch is a broker's."""
    return bool(request.replica_id >= 0 or request.replica_state.replica_id >= 0)


def emptied(request: Any, answer: Any) -> Any:
    """The answer to a Fetch whose records wait: a session goes on, and a new one does not begin."""
    if answer.error_code is not ErrorCode.NONE:
        return answer
    session_id = answer.session_id if request.session_epoch > 0 else 0
    return type(answer)(error_code=ErrorCode.NONE, session_id=session_id, responses=[])

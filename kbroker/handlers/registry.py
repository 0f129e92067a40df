"""Which function handles which API: `@handles(XRequest, demands…)` fills the table that dispatch and ApiVersions read.

A handler is `(services, ctx, request) -> answer`, where answer is the response message, None (acks=0: nothing is sent
back), or an awaitable of either. A plain value is answered at once, without a task. It may raise KafkaError (answered
with the API's own error response) or CloseConnection.

None can be registered without saying what its sender must be allowed to do (demands.py); dispatch sees to that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kbroker.protocol.schema import schema_of

if TYPE_CHECKING:
    from kbroker.handlers.demands import Demand
    from kbroker.protocol.schema import Message

Handler = Callable[..., Any]
HandlerFunction = TypeVar("HandlerFunction", bound=Handler)


class Handling(NamedTuple):
    """What answers an API's requests, and what it demands of who asks, in this order."""

    handler: Handler
    demands: tuple[Demand, ...]
    ends_with_connection: bool = False
    """Whether all its requests do (`RequestContext.ends_with_connection`), from the first moment: they only read."""
    asks_for_much: Callable[[Any], bool] | None = None
    """Which small requests have large answers: they stand in line with the large ones (network/large_requests.py)."""


HANDLERS: dict[int, Handling] = {}
"""By API key; filled by @handles, read by ApiVersions."""


class CloseConnection(Exception):
    """Raised by a handler or by dispatch: the connection ends without an answer; the text says why."""


def handles(
    request_type: type[Message],
    *demands: Demand,
    ends_with_connection: bool = False,
    asks_for_much: Callable[[Any], bool] | None = None,
) -> Callable[[HandlerFunction], HandlerFunction]:
    """Register the decorated function as the handler of a request class; raises TypeError when it demands nothing."""
    if not demands:
        name = request_type.__name__
        raise TypeError(f"@handles({name}) does not say what its sender must be allowed to do: see handlers/demands.py")

    def register(function: HandlerFunction) -> HandlerFunction:
        HANDLERS[schema_of(request_type).api_key] = Handling(function, demands, ends_with_connection, asks_for_much)
        return function

    return register

"""Which function handles which API: `@handles(XRequest)` fills the table that dispatch and ApiVersions read.

A handler is `(services, ctx, request) -> answer`, where answer is the response message, None (acks=0: nothing is sent
back), or an awaitable of either. A plain value is answered at once, without a task. It may raise KafkaError (answered
with the API's own error response) or CloseConnection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from kbroker.protocol.schema import schema_of

if TYPE_CHECKING:
    from kbroker.protocol.schema import Message

Handler = Callable[..., Any]
HandlerFunction = TypeVar("HandlerFunction", bound=Handler)

HANDLERS: dict[int, Handler] = {}
"""API key -> handler; filled by @handles, read by ApiVersions."""


class CloseConnection(Exception):
    """Raised by a handler or by dispatch: the connection ends without an answer; the text says why."""


def handles(request_type: type[Message]) -> Callable[[HandlerFunction], HandlerFunction]:
    """Register the decorated function as the handler of a request class."""

    def register(function: HandlerFunction) -> HandlerFunction:
        HANDLERS[schema_of(request_type).api_key] = function
        return function

    return register

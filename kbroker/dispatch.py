"""Find the handler of a request, call it, and turn a refusal into an answer.

Handlers register with `@handles(XRequest)`. A handler is `(services, ctx, request) -> answer`, where answer is the
response message, None (acks=0: nothing is sent back), or an awaitable of either. A plain value is answered at once, without
a task. It may raise KafkaError (answered with the API's own error response) or CloseConnection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from kbroker.context import RequestContext, Services
    from protocol.codec import Part
    from protocol.schema import Message

Answer = Any
"""A response Message, None for no answer, or an awaitable of either."""
Handler = Callable[..., Any]
HandlerFunction = TypeVar("HandlerFunction", bound=Handler)

HANDLERS: dict[int, Handler] = {}
"""API key -> handler; filled by @handles, read by ApiVersions."""


class CloseConnection(Exception):
    """Raised by a handler or by dispatch: the connection ends without an answer; the text says why."""


def handles(request_type: type[Message]) -> Callable[[HandlerFunction], HandlerFunction]:
    """Register the decorated function as the handler of a request class."""

    def register(function: HandlerFunction) -> HandlerFunction:
        key: int = request_type.api_key  # type: ignore[attr-defined]
        HANDLERS[key] = function
        return function

    return register


class Dispatcher:
    """Called by the server with each complete frame."""

    def __init__(self, services: Services) -> None:
        self.services = services

    def __call__(self, connection: Any, frame: memoryview) -> list[Part] | None | Awaitable[list[Part] | None]:
        """Return the parts of the answer (size first), None for none, or an awaitable; raise CloseConnection."""
        raise NotImplementedError

"""Find the handler of a request, call it, and turn a refusal into an answer.

Handlers register with `@handles(XRequest)`. A handler is `(services, ctx, request) -> answer`, where answer is the response
message, None (acks=0: nothing is sent back), or an awaitable of either. A plain value is answered at once, without a task.
It may raise KafkaError (answered with the API's own error response) or CloseConnection.

What a client gets for what it must not send (apis.md section 3):

    unknown API key, unsupported version, unparsable header or body    its connection is closed, one log line says why
    ApiVersions of an unknown version                                  ApiVersions v0 with error 35 and the versions of 18
    KafkaError, or a bug of ours (-1, with traceback in the log)       the API's response, the error in each place it has
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import Struct
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeVar

from kbroker.context import RequestContext
from protocol.apis import API_BY_KEY
from protocol.codec import decode
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import encode_response, read_request_header

if TYPE_CHECKING:
    from kbroker.connection import Connection
    from kbroker.context import Services
    from protocol.schema import Message

log = logging.getLogger(__name__)

Handler = Callable[..., Any]
HandlerFunction = TypeVar("HandlerFunction", bound=Handler)

HANDLERS: dict[int, Handler] = {}
"""API key -> handler; filled by @handles, read by ApiVersions."""


class _Pending:
    def __repr__(self) -> str:
        return "PENDING"


PENDING = _Pending()
"""What dispatch returns when the answer comes later, by connection.answer()."""


class CloseConnection(Exception):
    """Raised by a handler or by dispatch: the connection ends without an answer; the text says why."""


def handles(request_type: type[Message]) -> Callable[[HandlerFunction], HandlerFunction]:
    """Register the decorated function as the handler of a request class."""

    def register(function: HandlerFunction) -> HandlerFunction:
        HANDLERS[request_type.api_key] = function  # type: ignore[attr-defined]
        return function

    return register

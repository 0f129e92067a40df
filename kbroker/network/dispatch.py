"""Find the handler of a request, call it, and turn a refusal into an answer.

What a client gets for what it must not send:

    unknown API key, unsupported version, unparsable header or body   its connection is closed, a log line says why
    ApiVersions of an unknown version                                 ApiVersions v0, error 35, the versions of 18
    KafkaError, or a bug of ours (-1, with traceback in the log)      the API's response, the error in each place

Requests and answers of more than MOST_AT_ONCE elements are decoded and encoded in turns of the event loop; of such
requests some are in work at once, the others wait in line (large_requests.py), and so do small ones that ask for
all there is, and all that change one thing after the other in ZooKeeper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from struct import Struct
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any

from kbroker.handlers.context import RequestContext
from kbroker.handlers.demands import Asked, Steps, quick_of, together
from kbroker.handlers.refusals import refusal
from kbroker.handlers.registry import HANDLERS, CloseConnection, Handling
from kbroker.network.answer_errors import error_counter, error_counter_in_steps
from kbroker.network.large_requests import Lines, Place
from kbroker.network.letting_go import CancelledInTurn, let_go
from kbroker.network.limits import (
    BROKER_REQUESTS,
    CHANGES_ONE_BY_ONE,
    MOST_AT_ONCE,
    OPERATORS_REQUESTS,
    most_elements,
)
from kbroker.network.metering import Meter
from kbroker.network.request_times import ApiRequests, Times, Timing
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.codec import decode, decode_in_steps
from kbroker.protocol.errors import AnswerTooLarge, ErrorCode, KafkaError, MalformedMessage, TooManyElements
from kbroker.protocol.headers import encode_response, encode_response_in_steps, read_request_header
from kbroker.replica.reply import Reply
from kbroker.replica.turns import ERRAND, at_work, finished, in_turns
from kbroker.security.limited_lines import LimitedLines
from kbroker.security.quotas import ClientQuotas

if TYPE_CHECKING:
    from kbroker.handlers.context import Services
    from kbroker.network.connection import Connection
    from kbroker.protocol.headers import RequestHeader
    from kbroker.protocol.schema import Message
    from kbroker.security.authorizer import Authorizer

log = logging.getLogger(__name__)


class _Pending:
    def __repr__(self) -> str:
        return "PENDING"


PENDING = _Pending()
"""What dispatch returns when the answer comes later, by connection.answer()."""


class LateAnswer:
    """What dispatch returns for a Produce that is in its logs, or an EndTxn: the answer comes by
    connection.answer_late(), and other requests of the connection to the same API may be served before.
    """

    __slots__ = ("is_ready", "parts", "timing")

    def __init__(self, parts: list[Any] | None = None, timing: Timing | None = None) -> None:
        self.parts = parts
        """None: not known yet, or (ready) there is none to be sent."""
        self.is_ready = parts is not None
        self.timing = timing


class _Api:
    """What dispatch needs to know of one API, looked up once."""

    __slots__ = (
        "asks_for_much",
        "client_id_from",
        "count_errors",
        "count_errors_in_steps",
        "demand",
        "ends_with_connection",
        "flexible_from",
        "handler",
        "is_from_broker",
        "max_version",
        "min_version",
        "most_elements",
        "name",
        "quick",
        "request_type",
        "requests",
        "waits_in_line",
    )

    def __init__(self, api_key: int, handling: Handling) -> None:
        api = API_BY_KEY[api_key]
        self.handler = handling.handler
        self.ends_with_connection = handling.ends_with_connection
        self.asks_for_much = handling.asks_for_much
        self.demand = together(handling.demands)
        self.quick = quick_of(handling.demands)
        self.name = api.name
        self.request_type = api.request
        self.min_version = api.min_version
        self.max_version = api.max_version
        self.flexible_from = api.flexible_from
        self.most_elements = most_elements(api_key)
        self.waits_in_line = api_key in CHANGES_ONE_BY_ONE
        self.is_from_broker = _who_asks(api_key)
        self.client_id_from = 1 if api_key == CONTROLLED_SHUTDOWN else 0
        self.count_errors = error_counter(api.response)
        self.count_errors_in_steps = error_counter_in_steps(api.response)
        self.requests = ApiRequests(api.name, api.max_version + 1)
        if api_key == FETCH:
            self.requests.from_brokers, self.requests.from_consumers = Times(), Times()


PRODUCE, FETCH, LIST_OFFSETS, CONTROLLED_SHUTDOWN, API_VERSIONS, OFFSET_FOR_LEADER_EPOCH = 0, 1, 2, 7, 18, 23


def _who_asks(api_key: int) -> Callable[[Any], bool] | None:
    """Return what tells whether a request of this API comes from a broker; None where it never does."""
    if api_key in BROKER_REQUESTS:
        return lambda request: True
    if api_key == FETCH:
        return lambda request: request.replica_id >= 0 or request.replica_state.replica_id >= 0
    if api_key in (LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH):
        return lambda request: bool(request.replica_id >= 0)
    return None


_read_fixed_header = Struct(">hhih").unpack_from


def _unparsable(api: _Api, version: int, error: MalformedMessage) -> CloseConnection:
    return CloseConnection(f"a {api.name} request (version {version}) cannot be parsed: {error}")


class Dispatcher:
    """Called by the server with each complete frame; knows the handlers that were registered when it was made."""

    def __init__(
        self, services: Services, authorizer: Authorizer | None = None, quotas: ClientQuotas | None = None
    ) -> None:
        self.services = services
        self.quotas = quotas or ClientQuotas(1, 1000, 1)
        self.meter = Meter(self.quotas)
        self.authorizer = authorizer
        """None: everybody may do everything."""
        self.apis = {key: _Api(key, handling) for key, handling in HANDLERS.items()}
        self._lines = Lines()
        self._impostors = LimitedLines(log, "refused requests that are for brokers")

    @property
    def waiting(self) -> int:
        """Requests that wait to be worked on."""
        return self._lines.waiting

    def __call__(self, connection: Connection, frame: memoryview) -> Any:
        """Return the parts of the answer (size first), None for none, or PENDING; raise CloseConnection."""
        if len(frame) < 10:
            raise CloseConnection(f"a frame of {len(frame)} bytes is too short for a request header")
        key, version, correlation_id, length = _read_fixed_header(frame)
        api = self.apis.get(key)
        if api is None:
            raise CloseConnection(f"unknown or unsupported API key {key} (version {version})")
        if not api.min_version <= version <= api.max_version:
            return self._answer_unknown_version(api, key, version, correlation_id)
        try:
            position = 10 + length
            flexible = version >= api.flexible_from
            if version >= api.client_id_from and 0 <= length < len(frame) - 10 and not (flexible and frame[position]):
                client_id: str | None = str(frame[10:position], "utf-8", "replace")
                position += flexible
            else:  # no client id, tagged fields, or nonsense
                header, position = read_request_header(frame)
                client_id = header.client_id
            request = None
            if not api.waits_in_line:
                request = decode(api.request_type, frame, version, position, MOST_AT_ONCE)
                if api.asks_for_much is not None and api.asks_for_much(request):
                    request = None
        except TooManyElements:
            pass
        except MalformedMessage as error:
            raise _unparsable(api, version, error) from error
        began = monotonic_ns()
        ctx = RequestContext(key, version, correlation_id, client_id, time_ns() // 1_000_000, connection)
        ctx.ends_with_connection = api.ends_with_connection
        requests = api.requests
        requests.by_version[version] += 1
        if requests.to_skip:
            requests.to_skip -= 1
        else:
            ctx.timing = requests.timing(connection.received or connection.last_active, len(frame))
        if request is None:
            ctx.is_large = True
            asyncio.ensure_future(self._serve_large(api, ctx, frame, position)).add_done_callback(_Send(ctx))
            return PENDING
        answer = self._handle(api, ctx, request)
        if ctx.timing is not None:
            ctx.timing.handled()
        if self.quotas.is_used:
            ctx.request_bytes, ctx.busy_ms = len(frame), (monotonic_ns() - began) / 1e6
        if answer is None:
            self._unanswered(ctx, request)
            if ctx.timing is not None:
                ctx.timing.sent()
            return None
        if hasattr(answer, "__await__"):
            late = ctx.late = LateAnswer() if ctx.may_be_overtaken else None
            future = answer if type(answer) is Reply else asyncio.ensure_future(answer)
            future.add_done_callback(_Finish(self, ctx, request))
            if ctx.ends_with_connection:
                connection.cancel_when_closed(future)
            return PENDING if late is None else late
        parts = self._encode(ctx, request, answer)
        if type(parts) is list:
            connection.timing = ctx.timing
            return parts
        asyncio.ensure_future(parts).add_done_callback(_Send(ctx))
        return PENDING

    def _handle(self, api: _Api, ctx: RequestContext, request: Any) -> Any:
        """Return the answer, None for none, or an awaitable of either."""
        try:
            if api.is_from_broker is not None and api.is_from_broker(request):
                if ctx.connection.takes_brokers:
                    api.requests.by_version_from_brokers[ctx.api_version] += 1
                    if ctx.timing is not None:
                        ctx.timing.is_from_broker = True
                elif self.authorizer is None or ctx.api_key not in OPERATORS_REQUESTS:
                    raise self._not_a_broker(api, ctx.connection)
            if self.authorizer is not None:
                connection = ctx.connection
                authority = connection.authority
                if authority.principal != connection.principal:
                    authority = self.authorizer.authority(connection.principal, connection.host)
                    connection.authority = authority
                if api.quick is None or not api.quick(authority, request):
                    return self._handle_what_is_allowed(api, Asked(self.services, ctx, request, authority))
            return api.handler(self.services, ctx, request)
        except CloseConnection:
            raise
        except Exception as error:
            return self._refuse(ctx, request, error)

    def _not_a_broker(self, api: _Api, connection: Connection) -> KafkaError:
        text = f"{api.name} is for brokers, who have a listener of their own"
        log.log(self._impostors.level(connection.host, logging.INFO), "refusing %r: %s", connection, text)
        return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)

    def _handle_what_is_allowed(self, api: _Api, asked: Asked) -> Any:
        steps = api.demand(asked)
        return self._handle_the_rest(api, asked) if steps is None else in_turns(self._judge(api, asked, steps))

    def _judge(self, api: _Api, asked: Asked, steps: Steps) -> Generator[None, None, Any]:
        yield from steps
        return self._handle_the_rest(api, asked)

    def _handle_the_rest(self, api: _Api, asked: Asked) -> Any:
        """Have the handler answer what was not taken out, and say the rest."""
        if not asked.is_left:
            return _made(asked.ctx, partial(asked.complete, None))
        if asked.is_untouched:
            return api.handler(self.services, asked.ctx, asked.request)
        try:
            answer = api.handler(self.services, asked.ctx, asked.request)
        except KafkaError as error:
            answer = self._refuse(asked.ctx, asked.request, error)
        if hasattr(answer, "__await__"):
            return self._complete_later(asked, answer)
        return _made(asked.ctx, partial(asked.complete, answer))

    async def _complete_later(self, asked: Asked, later: Awaitable[Any]) -> Any:
        try:
            answer = await later
        except KafkaError as error:
            answer = await finished(self._refuse(asked.ctx, asked.request, error))
        return await finished(_made(asked.ctx, partial(asked.complete, answer)))

    async def _serve_large(self, api: _Api, ctx: RequestContext, frame: memoryview, position: int) -> Any:
        """Return the parts of the answer to a request that is decoded in turns, None for none."""
        version, size, connection = ctx.api_version, len(frame), ctx.connection
        line = self._lines.line_of(ctx.api_key, size, connection.takes_brokers)
        # Who produces with acks=0 may leave at once. Of others who leave nobody is told that anything was done.
        place = await line.enter(None if ctx.api_key == PRODUCE else connection)
        ERRAND.set(place)
        if ctx.timing is not None:
            ctx.timing.begins()
        try:
            request: Any = await finished(
                in_turns(decode_in_steps(api.request_type, frame, version, position, api.most_elements))
            )
        except MalformedMessage as error:
            place.leave()
            raise _unparsable(api, version, error) from error
        try:
            return await self._answer_large(api, ctx, request, size, place)
        finally:
            let_go(request).add_done_callback(place.leave)

    async def _answer_large(self, api: _Api, ctx: RequestContext, request: Any, size: int, place: Place) -> Any:
        began = monotonic_ns()
        answer = self._handle(api, ctx, request)
        if ctx.timing is not None:
            ctx.timing.handled()
        if self.quotas.is_used:
            ctx.request_bytes, ctx.busy_ms = size, (monotonic_ns() - began) / 1e6
        if hasattr(answer, "__await__"):
            waiting = asyncio.ensure_future(answer)
            place.when_it_only_waits = partial(ctx.connection.cancel_when_closed, CancelledInTurn(waiting))
            if ctx.ends_with_connection:
                place.when_it_only_waits()
            try:
                answer = await waiting
            except CloseConnection:
                raise
            except Exception as error:
                answer = await finished(self._refuse(ctx, request, error))
            finally:
                place.when_it_only_waits = None
            del waiting
        if answer is None:
            self._unanswered(ctx, request)
            return None
        encoding = self._encode(ctx, request, answer)
        del answer
        return await finished(encoding)

    def _unanswered(self, ctx: RequestContext, request: Any) -> None:
        """The request has no answer, but may have used too much."""
        if self.quotas.is_used:
            self.meter.count(ctx, request, None)

    def _encode(self, ctx: RequestContext, request: Message, answer: Message) -> Any:
        """Return the parts of the answer, or an awaitable of them when there is much to encode."""
        try:
            if self.quotas.is_used:
                answer = self.meter.count(ctx, request, answer)
            parts = encode_response(answer, ctx.api_version, ctx.correlation_id, MOST_AT_ONCE)
        except TooManyElements:
            return in_turns(self._encode_large(ctx, request, answer))
        except Exception as error:
            return in_turns(self._encode_in_steps(ctx, request, self._refusal(ctx, request, error)()))
        api = self.apis[ctx.api_key]
        api.count_errors(answer, api.requests.errors)
        return parts

    def _encode_large(self, ctx: RequestContext, request: Message, answer: Message) -> Generator[None, None, Any]:
        try:
            return (yield from self._encode_in_steps(ctx, request, answer))
        finally:
            let_go(answer)

    def _encode_in_steps(self, ctx: RequestContext, request: Message, answer: Message) -> Generator[None, None, Any]:
        try:
            parts = yield from encode_response_in_steps(answer, ctx.api_version, ctx.correlation_id)
        except Exception as error:
            answer = self._refusal(ctx, request, error)()
            parts = yield from encode_response_in_steps(answer, ctx.api_version, ctx.correlation_id)
        api = self.apis[ctx.api_key]
        yield from api.count_errors_in_steps(answer, api.requests.errors)
        return parts

    def _answer_unknown_version(self, api: _Api, key: int, version: int, correlation_id: int) -> Any:
        """Answer ApiVersions in version 0, so that a newer client learns which version to ask in."""
        if key != API_VERSIONS:
            supported = f"{api.min_version} to {api.max_version}"
            raise CloseConnection(f"{api.name} version {version} is not supported ({supported} are)")
        response: Any = API_BY_KEY[API_VERSIONS].response
        entry = response.ApiVersion(api_key=API_VERSIONS, min_version=api.min_version, max_version=api.max_version)
        answer = response(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[entry])
        api.count_errors(answer, api.requests.errors)
        return encode_response(answer, 0, correlation_id)

    def refuse(self, header: RequestHeader, request: Message, code: ErrorCode, text: str) -> list[Any] | None:
        """Return the parts of the API's response for a request that no handler is to see; None where there is none."""
        if header.api_key == PRODUCE and getattr(request, "acks", -1) == 0:
            return None
        answer = refusal(header.api_key, request, header.api_version, code, text)
        return encode_response(answer, header.api_version, header.correlation_id)

    def _refuse(self, ctx: RequestContext, request: Any, error: BaseException) -> Any:
        """Return the API's response for a request that failed as a whole; an awaitable of it for a large one."""
        return _made(ctx, self._refusal(ctx, request, error))

    def _refusal(self, ctx: RequestContext, request: Any, error: BaseException) -> Callable[[], Message]:
        """Log why a request failed; return what makes its response."""
        name = API_BY_KEY[ctx.api_key].name
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
            if isinstance(error, AnswerTooLarge):
                log.warning("refusing %s version %d from %r: %s", name, ctx.api_version, ctx.connection, message)
        else:
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
            log.error("%s version %d from %r failed", name, ctx.api_version, ctx.connection, exc_info=error)
        if ctx.api_key == PRODUCE and request.acks == 0:
            self.apis[PRODUCE].requests.errors[code] += 1
            raise CloseConnection(f"Produce with acks=0 failed: {code.name}")
        return partial(refusal, ctx.api_key, request, ctx.api_version, code, message)


def _made(ctx: RequestContext, make: Callable[[], Any]) -> Any:
    """Return what repeats the elements of a request; for a large one an awaitable of it, made in a thread."""
    return _in_thread(make) if ctx.is_large else make()


async def _in_thread(make: Callable[[], Any]) -> Any:
    with at_work():
        return await asyncio.to_thread(make)


class _Send:
    """Sends the parts of an answer when they are there."""

    __slots__ = ("ctx",)

    def __init__(self, ctx: RequestContext) -> None:
        self.ctx = ctx

    def __call__(self, future: asyncio.Future[Any] | Reply) -> None:
        error = _error_of(future)
        if error is None:
            self.send(future.result())
        else:
            self.close(error)

    def close(self, error: BaseException) -> None:
        """End the connection: there will be no answer."""
        if not isinstance(error, CloseConnection):
            raise error
        self.ctx.connection.close(str(error), logging.WARNING)

    def send(self, parts: list[Any] | None) -> None:
        """Give the connection what is to be sent; None: nothing."""
        timing = self.ctx.timing
        if timing is not None:
            timing.answered()
            if parts is None:
                timing.sent()
                timing = None
        late = self.ctx.late
        if late is None:
            self.ctx.connection.answer(parts, timing)
        else:
            late.timing = timing
            self.ctx.connection.answer_late(late, parts)


class _Finish(_Send):
    """Sends the answer when the handler's future is done."""

    __slots__ = ("dispatcher", "request")

    def __init__(self, dispatcher: Dispatcher, ctx: RequestContext, request: Any) -> None:
        super().__init__(ctx)
        self.dispatcher = dispatcher
        self.request = request

    def __call__(self, future: asyncio.Future[Any] | Reply) -> None:
        error = _error_of(future)
        if isinstance(error, CloseConnection):
            self.close(error)
            return
        try:
            answer = future.result() if error is None else self.dispatcher._refuse(self.ctx, self.request, error)
            if answer is None:
                self.dispatcher._unanswered(self.ctx, self.request)
                parts = None
            else:
                parts = self.dispatcher._encode(self.ctx, self.request, answer)
        except CloseConnection as reason:
            self.close(reason)
            return
        self.request = None
        if parts is None or type(parts) is list:
            self.send(parts)
        else:
            asyncio.ensure_future(parts).add_done_callback(_Send(self.ctx))


def _error_of(future: asyncio.Future[Any] | Reply) -> BaseException | None:
    """Return what it ended with instead of a result; a CloseConnection for one that was cancelled.

    It is not raised again: it would hold this frame, which holds the future, which holds it, and so the whole request
    until the garbage collector looks at all there is.
    """
    return CloseConnection("its request was cancelled") if future.cancelled() else future.exception()

"""One link: a client's connection, the one to the broker behind it, and a pump for each direction.

Frames go through in pieces as they come. A frame is taken whole only where its inside matters: answers that hold
addresses (addresses.py), and what a fault or a meddler wants to see. Whoever reads slowly is written to slowly: a pump
reads on when what it has read is written. Answers come in the order of the requests, as Kafka promises.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.codec import decode
from kbroker.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kbroker.protocol.frame import SIZE_BYTES, FrameError
from kbroker.protocol.headers import (
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
)
from kbroker.protocol.primitives import Part
from kbroker.protocol.records.buffers import BufferPool
from kbroker.protocol.schema import Message
from kbroker.verify.proxy.addresses import API_VERSIONS_KEY, FIRST_WITH_ADDRESSES, holds_addresses, is_known
from kbroker.verify.proxy.exchange import (
    Exchange,
    Meddler,
    RequestHead,
    produce_answer,
    read_head,
    set_errors,
)
from kbroker.verify.proxy.faults import (
    ActiveFaults,
    AnswerError,
    Direction,
    HoldRequest,
    LinkName,
    LoseAnswer,
)
from kbroker.verify.proxy.wire import MOST_PEEKED, STAGING_BYTES, Incoming, dial, reset

log = logging.getLogger(__name__)

SASL_HANDSHAKE = 17
MOST_UNANSWERED = 10_000
"""Requests of one link that wait for their answers; then it reads no more of them."""
ROUNDS_PER_SECOND = 20
"""In so many portions a throttled link writes."""


class LinkEnded(Exception):
    """The proxy ends the link: a fault, or something that cannot go on through it."""


@dataclass(eq=False, slots=True)
class Asked:
    """A request that was passed on, and what becomes of its answer."""

    head: RequestHead
    exchange: Exchange | None = None
    meddlers: Sequence[Meddler] = ()
    lose: LoseAnswer | None = None
    error: AnswerError | None = None
    is_swallowed: bool = False
    """Nobody waits for it: the proxy's own request."""

    @property
    def is_looked_into(self) -> bool:
        """Whether the answer is taken whole."""
        head = self.head
        return bool(
            self.meddlers
            or self.error is not None
            or head.api_key == API_VERSIONS_KEY
            or holds_addresses(head.api_key, head.api_version)
        )


class Surroundings(Protocol):
    """What a link asks of the proxy."""

    faults: ActiveFaults
    meddlers: Sequence[Meddler]
    topic_names: dict[bytes, str]
    pool: BufferPool
    max_frame: int

    def rewrite(self, head: RequestHead, answer: Any) -> bool:
        """Replace what the cluster says of itself; whether anything was."""

    def hold(self, late: Late) -> None:
        """Take a request over that arrives late."""

    def answered(self, link: LinkName, api_key: int) -> None:
        """A client has got an answer."""


@dataclass(eq=False, slots=True)
class Late:
    """A request held back, with the broker's side of the link it came on."""

    fault: HoldRequest
    link: LinkName
    frame: bytes
    upstream: socket.socket


class Link:
    """Made when a client connects; `run` lasts as long as it does."""

    def __init__(self, name: LinkName, client: socket.socket, address: tuple[str, int], proxy: Surroundings) -> None:
        self.name = name
        self._client = client
        self._address = address
        self._proxy = proxy
        self._faults = proxy.faults
        self._loop = asyncio.get_running_loop()
        self._upstream: socket.socket | None = None
        self._asked: deque[Asked] = deque()
        self._progress = asyncio.Event()
        """Replaced whenever an answer has been given."""

    async def run(self) -> None:
        """Pass frames until both sides have ended, or one has broken off."""
        is_in_order = False
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(group))
            is_in_order = True
        except* (OSError, LinkEnded) as broken:
            log.debug("link %d: %s", self.name.number, broken.exceptions[0])
        except* (FrameError, MalformedMessage, KafkaError) as broken:
            log.warning("link %d cannot go on: %s", self.name.number, broken.exceptions[0])
        finally:
            for sock in (self._client, self._upstream):
                if sock is not None:
                    sock.close() if is_in_order else reset(sock)

    # -- to the broker --------------------------------------------------------------------------------------------

    async def _requests(self, group: asyncio.TaskGroup) -> None:
        incoming = Incoming(self._client, self._proxy.max_frame, self._proxy.pool)
        while await incoming.next_frame() is not None:
            head = read_head(await incoming.peek(MOST_PEEKED))
            self.name.client_id = head.client_id
            if self._faults:
                await self._faults.until_open(self.name, Direction.TO_BROKER)
                await self._faults.delay(self.name, Direction.TO_BROKER)
                if self._faults.refuses(self.name):
                    raise LinkEnded("refused")
            self._refuse_what_leads_around(head)
            if self._upstream is None:
                self._upstream = await dial(*self._address)
                group.create_task(self._answers(self._upstream))
            while len(self._asked) >= MOST_UNANSWERED:
                await self._next_answer()
            await self._request(head, incoming, self._upstream)
        await self._end_of(Direction.TO_BROKER, self._upstream)

    async def _request(self, head: RequestHead, incoming: Incoming, upstream: socket.socket) -> None:
        """Pass one request on, or do with it what is to be done."""
        asked = Asked(head)
        if self._faults:
            if (held := self._faults.take(HoldRequest, self.name, head.api_key)) is not None:
                await self._hold(held, incoming, upstream)
            if head.is_answered:
                asked.lose = self._faults.take(LoseAnswer, self.name, head.api_key)
                asked.error = self._faults.take(AnswerError, self.name, head.api_key)
        if is_known(head.api_key, head.api_version):
            asked.meddlers = [each for each in self._proxy.meddlers if head.api_key in each.api_keys]
        is_refused = asked.error is not None and not asked.error.carried_out
        if asked.meddlers or is_refused:
            await self._request_looked_into(asked, await incoming.whole(), upstream)
            return
        self._note(asked)
        while piece := await incoming.piece():
            await self._write(Direction.TO_BROKER, upstream, piece)

    async def _request_looked_into(self, asked: Asked, frame: memoryview, upstream: socket.socket) -> None:
        head = asked.head
        _, position = read_request_header(frame)
        request = decode(API_BY_KEY[head.api_key].request, frame, head.api_version, position)
        if asked.error is not None and not asked.error.carried_out:
            asked.error.note()
            await self._answer_here(head, produce_answer(request, asked.error.error))
            return
        exchange = asked.exchange = Exchange(self.name, head.api_version, request, self._proxy.topic_names)
        for meddler in asked.meddlers:
            if (answer := meddler.request(exchange)) is not None:
                await self._answer_here(head, answer)
                return
        self._note(asked)
        await self._send_request(head, exchange.request, upstream)
        for extra in exchange.extra_requests:
            self._note(Asked(head, is_swallowed=True))
            await self._send_request(head, extra, upstream)

    async def _send_request(self, head: RequestHead, request: Message, upstream: socket.socket) -> None:
        parts = encode_request(request, head.api_version, head.correlation_id, head.client_id)
        await self._write_parts(Direction.TO_BROKER, upstream, parts)

    async def _answer_here(self, head: RequestHead, answer: Message) -> None:
        """Answer in the broker's place, when all that was asked before is answered."""
        if not head.is_answered:
            return
        while self._asked:
            await self._next_answer()
        parts = encode_response(answer, head.api_version, head.correlation_id)
        await self._write_parts(Direction.TO_CLIENT, self._client, parts)

    async def _hold(self, fault: HoldRequest, incoming: Incoming, upstream: socket.socket) -> None:
        """Keep the request and the broker's connection, and reset the client's."""
        frame = await incoming.whole()
        fault.note()
        late = Late(fault, self.name, len(frame).to_bytes(SIZE_BYTES, "big") + bytes(frame), upstream)
        self._upstream = None  # it is not closed with this link
        self._proxy.hold(late)
        raise LinkEnded("its request arrives late")

    def _note(self, asked: Asked) -> None:
        if asked.head.is_answered:
            self._asked.append(asked)

    def _refuse_what_leads_around(self, head: RequestHead) -> None:
        """End the link where the client would be told addresses that cannot be read, or speaks what no frame holds."""
        if head.api_key in FIRST_WITH_ADDRESSES and not is_known(head.api_key, head.api_version):
            known = API_BY_KEY[head.api_key]
            if head.api_version > known.max_version:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION, f"{known.name} v{head.api_version} was not offered to the client"
                )
        if head.api_key == SASL_HANDSHAKE and head.api_version == 0:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "SaslHandshake v0, behind which tokens follow without a head"
            )

    # -- to the client --------------------------------------------------------------------------------------------

    async def _answers(self, upstream: socket.socket) -> None:
        incoming = Incoming(upstream, self._proxy.max_frame, self._proxy.pool)
        while await incoming.next_frame() is not None:
            correlation_id = int.from_bytes(await incoming.peek(SIZE_BYTES), "big", signed=True)
            asked = self._asked[0] if self._asked else None
            if asked is None or asked.head.correlation_id != correlation_id:
                raise MalformedMessage(f"an answer to request {correlation_id}, which is not the next to be answered")
            if self._faults:
                await self._faults.delay(self.name, Direction.TO_CLIENT)
            await self._answer(asked, incoming)
            self._asked.popleft()
            self._progress.set()
            self._progress = asyncio.Event()
            self._proxy.answered(self.name, asked.head.api_key)
        await self._end_of(Direction.TO_CLIENT, self._client)

    async def _answer(self, asked: Asked, incoming: Incoming) -> None:
        if asked.lose is not None:
            asked.lose.note()
            if not asked.lose.silently:
                raise LinkEnded("its answer is lost")
        if asked.is_swallowed or asked.lose is not None:
            while await incoming.piece():
                pass
        elif asked.is_looked_into:
            parts = self._looked_into(asked, await incoming.whole())
            if asked.exchange is not None and asked.exchange.pause_seconds > 0:
                await asyncio.sleep(asked.exchange.pause_seconds)
            await self._write_parts(Direction.TO_CLIENT, self._client, parts)
        else:
            while piece := await incoming.piece():
                await self._write(Direction.TO_CLIENT, self._client, piece)

    def _looked_into(self, asked: Asked, frame: memoryview) -> Sequence[Part]:
        """Return the answer's frame as the client gets it."""
        head = asked.head
        untouched = (len(frame).to_bytes(SIZE_BYTES, "big"), frame)
        version = _answered_version(head, frame)
        if not is_known(head.api_key, version):
            return untouched
        _, answer = decode_response(frame, API_BY_KEY[head.api_key].response, version)
        is_changed = self._proxy.rewrite(head, answer)
        if asked.exchange is not None:
            for meddler in asked.meddlers:
                meddler.answer(asked.exchange, answer)
                is_changed = True
        if asked.error is not None:
            asked.error.note()
            set_errors(answer, asked.error.error)
            is_changed = True
        return encode_response(answer, version, head.correlation_id) if is_changed else untouched

    async def _next_answer(self) -> None:
        await self._progress.wait()

    # -- both -----------------------------------------------------------------------------------------------------

    async def _write_parts(self, direction: Direction, sock: socket.socket, parts: Sequence[Part]) -> None:
        """Write a frame: small pieces as one, so that it leaves at once."""
        views = [memoryview(part) for part in parts if isinstance(part, bytes | bytearray | memoryview)]
        if sum(map(len, views)) <= STAGING_BYTES:
            views = [memoryview(b"".join(views))]
        for view in views:
            await self._write(direction, sock, view)

    async def _write(self, direction: Direction, sock: socket.socket, piece: memoryview) -> None:
        """Let bytes through as the faults allow."""
        while piece and self._faults:
            await self._faults.until_open(self.name, direction)
            count = len(piece)
            if (resetting := self._faults.reset_after(self.name, direction)) is not None:
                count = min(count, resetting.bytes_left)
            if (slow := self._faults.throttle(self.name, direction)) is not None:
                count = min(count, max(1, int(slow.bytes_per_second / ROUNDS_PER_SECOND)))
            await self._loop.sock_sendall(sock, piece[:count])
            piece = piece[count:]
            if slow is not None:
                slow.note()
                await self._faults.hold_for(slow, count / slow.bytes_per_second)
            if resetting is not None and self._faults.holds(resetting):
                resetting.bytes_left -= count
                if resetting.bytes_left <= 0:
                    self._faults.remove(resetting)
                    resetting.note()
                    raise LinkEnded("reset")
        if piece:
            await self._loop.sock_sendall(sock, piece)

    async def _end_of(self, direction: Direction, sock: socket.socket | None) -> None:
        """Pass on that a side sends no more."""
        await self._faults.until_open(self.name, direction)
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)


def _answered_version(head: RequestHead, frame: memoryview) -> int:
    """An ApiVersions request in a version that the broker does not know is answered in version 0."""
    is_refusal = head.api_key == API_VERSIONS_KEY and frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    return 0 if is_refusal else head.api_version

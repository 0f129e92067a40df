"""One connection's protocol state, without I/O: requests become bytes, received bytes become responses.

    frame = int32 size | response header | body          answers come in any order; the correlation id says whose

The caller receives into `buffer()` and reports how much came with `received(count)`. Small frames are cut from a
staging buffer; the rest of a large frame is received straight into a buffer of its own, taken from a pool and used
again as soon as nobody looks into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kbroker.client.errors import error_for
from kbroker.protocol.errors import ErrorCode, MalformedMessage
from kbroker.protocol.frame import SIZE_BYTES, FrameError, frame_size
from kbroker.protocol.headers import decode_response, encode_request
from kbroker.protocol.records.buffers import BufferPool
from kbroker.protocol.schema import Api, api_of

if TYPE_CHECKING:
    from kbroker.protocol.primitives import Part
    from kbroker.protocol.schema import Message

STAGING_BYTES = 64 * 1024
DEFAULT_MAX_FRAME = 128 << 20
TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""How alerts and handshakes of TLS begin."""
SPEAKS_TLS = "it speaks TLS"
SPEAKS_HTTP = "it speaks HTTP:"
SHOWN_BYTES = 60
"""Of text that is no answer."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer and the request it belongs to; `error` instead of a message when its bytes made no sense."""

    correlation_id: int
    message: Any
    error: MalformedMessage | None = None


class Session:
    """Correlation ids, versions, framing. After an exception from `received` the connection must be closed."""

    def __init__(
        self, client_id: str | None, max_frame: int = DEFAULT_MAX_FRAME, pool: BufferPool | None = None
    ) -> None:
        self.client_id = client_id
        self.max_frame = max_frame
        self.versions: dict[int, tuple[int, int]] = {}
        """API key -> lowest and highest version the broker serves; empty until ApiVersions was answered."""
        self._pool = BufferPool(max_bytes=64 << 20) if pool is None else pool
        self._expected: dict[int, tuple[type[Message], int]] = {}
        self.last_correlation_id = 0
        self._staging = bytearray(STAGING_BYTES)
        self._staging_view = memoryview(self._staging)
        self._start = 0
        self._end = 0
        self._frame: memoryview | None = None
        self._frame_filled = 0

    @property
    def in_flight(self) -> int:
        """Requests without an answer so far."""
        return len(self._expected)

    @property
    def missing(self) -> int:
        """Bytes of a large frame that are still to come; 0 when none has begun."""
        return 0 if self._frame is None else len(self._frame) - self._frame_filled

    def send(self, request: Message, version: int, expect_answer: bool = True) -> tuple[int, Sequence[Part]]:
        """Return the request's correlation id and the parts to write, in order."""
        self.last_correlation_id = correlation_id = (self.last_correlation_id + 1) & 0x7FFFFFFF
        parts = encode_request(request, version, correlation_id, self.client_id)
        if expect_answer:
            self._expected[correlation_id] = (api_of(type(request)).response, version)
        return correlation_id, parts

    def version_for(self, request_type: type[Message], highest: int | None = None) -> int:
        """Return the newest version both sides have; raises UNSUPPORTED_VERSION when there is none."""
        api = api_of(request_type)
        known = self.versions.get(api.key)
        if known is None:
            if not self.versions:
                return api.max_version if highest is None else min(highest, api.max_version)
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not serve {api.name}")
        version = min(api.max_version, known[1] if highest is None else min(highest, known[1]))
        if version < max(api.min_version, known[0]):
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, _no_common_version(api, known))
        return version

    def buffer(self) -> memoryview:
        """Return where the next bytes go; never empty."""
        if self._frame is not None:
            return self._frame[self._frame_filled :]
        if self._start == self._end:
            self._start = self._end = 0
        elif STAGING_BYTES - self._end < SIZE_BYTES:
            kept = bytes(self._staging_view[self._start : self._end])
            self._staging_view[: len(kept)] = kept
            self._start, self._end = 0, len(kept)
        return self._staging_view[self._end :]

    def received(self, count: int) -> list[Response]:
        """Take note of `count` bytes written to `buffer()`; return the responses they complete.

        Raises FrameError for a size no frame may have, KafkaError for an answer nobody asked for.
        """
        if self._frame is not None:
            self._frame_filled += count
            if self._frame_filled < len(self._frame):
                return []
            frame, self._frame = self._frame, None
            return [self._decode(frame)]
        self._end += count
        responses = []
        while self._end - self._start >= SIZE_BYTES:
            try:
                size = frame_size(self._staging_view, self.max_frame, self._start)
            except FrameError as error:
                raise FrameError(what_speaks(bytes(self._staging_view[self._start : self._end])) or error) from None
            body = self._start + SIZE_BYTES
            if self._end - body < size:
                self._begin_frame(size, body)
                break
            # A copy: the staging buffer is written again before the answer is used.
            responses.append(self._decode(bytes(self._staging_view[body : body + size])))
            self._start = body + size
        return responses

    def _begin_frame(self, size: int, body: int) -> None:
        """Go on with a frame that is not complete yet in a buffer of its own."""
        self._frame = memoryview(self._pool.borrow(size))[:size]
        self._frame_filled = self._end - body
        self._frame[: self._frame_filled] = self._staging_view[body : self._end]
        self._start = self._end = 0

    def _decode(self, frame: bytes | memoryview) -> Response:
        if len(frame) < SIZE_BYTES:
            raise error_for(ErrorCode.CORRUPT_MESSAGE, f"a response of {len(frame)} bytes has no correlation id")
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        expected = self._expected.pop(correlation_id, None)
        if expected is None:
            raise error_for(ErrorCode.CORRUPT_MESSAGE, f"an answer to request {correlation_id}, which nobody sent")
        response_type, version = expected
        try:
            return Response(correlation_id, decode_response(frame, response_type, version)[1])
        except MalformedMessage as error:
            return Response(correlation_id, None, error)


def what_speaks(first: bytes) -> str:
    """Say who sends such bytes instead of a frame: another protocol, or somebody who writes text; "" for others."""
    if first[:2] in TLS_RECORDS:
        return SPEAKS_TLS
    line = first[:SHOWN_BYTES].splitlines()[0]
    if len(line) < SIZE_BYTES or not (line.isascii() and line.decode().isprintable()):
        return ""
    return f"{SPEAKS_HTTP if line.startswith(b'HTTP/') else 'it says'} {line.decode()!r}"


def _no_common_version(api: Api, known: tuple[int, int]) -> str:
    ours = f"{api.min_version}-{api.max_version}"
    return f"the broker serves versions {known[0]}-{known[1]} of {api.name}, this client {ours}"

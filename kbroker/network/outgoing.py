"""The answers of one connection on their way out: parts in memory by sendmsg, slices of files by sendfile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.network.parts import MOST_PARTS_AT_ONCE, SMALL_FILE_PART, Shortened, advance, gather, in_memory

if TYPE_CHECKING:
    from kbroker.network.channel import Channel


class Outgoing:
    """What the socket has not taken yet. One list of parts at a time: the next one comes when `is_empty`."""

    __slots__ = ("_index", "_offset", "_parts", "_send_file", "_send_parts")

    def __init__(self, channel: Channel) -> None:
        self._send_parts, self._send_file = channel.send, channel.send_file
        self._parts: list[Any] | None = None
        self._index = self._offset = 0
        """The part that goes on, and from which of its bytes."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits for the socket."""
        return self._parts is None

    def send(self, parts: list[Any]) -> bool:
        """Send the parts now, as far as the socket takes them. True when all are out; else `flush` goes on.

        Raises OSError: the socket is gone, or a file (`Shortened`).
        """
        self._index = self._offset = 0
        if len(parts) <= MOST_PARTS_AT_ONCE:
            try:
                wanted = in_memory(parts)
                if wanted >= 0:
                    sent = self._send_parts(parts)
                    if sent == wanted:
                        return True
                    self._index, self._offset = advance(parts, 0, sent)
            except (BlockingIOError, InterruptedError):
                self._parts = parts
                return False
        self._parts = parts
        return self.flush()

    def flush(self) -> bool:
        """Write until all parts are out (True), the socket is full, or these were many parts: go on in the next turn of
        the loop. Raises OSError as `send` does.
        """
        parts = self._parts
        assert parts is not None
        most = self._index + MOST_PARTS_AT_ONCE
        try:
            while self._index < len(parts):
                if self._index >= most:
                    return False
                part = parts[self._index]
                if hasattr(part, "fileno") and part.size > SMALL_FILE_PART:
                    is_full = self._flush_file(parts, part)
                else:
                    is_full = self._flush_bytes(parts)
                if is_full:
                    return False
        except (BlockingIOError, InterruptedError):
            return False
        self._parts = None
        return True

    def _flush_file(self, parts: list[Any], part: Any) -> bool:
        """Send what is left of a slice of a file. True when the socket is full."""
        sent = self._send_file(part.fileno(), part.position + self._offset, part.size - self._offset)
        if sent == 0:
            raise Shortened(part)
        self._index, self._offset = advance(parts, self._index, self._offset + sent)
        return self._offset > 0

    def _flush_bytes(self, parts: list[Any]) -> bool:
        """Send the next parts in memory. True when the socket is full."""
        buffers, wanted, more = gather(parts, self._index, self._offset)
        sent = self._send_parts(buffers, more)
        self._index, self._offset = advance(parts, self._index, self._offset + sent)
        return sent < wanted

    def discard(self) -> None:
        """Send nothing more: the socket is closed."""
        self._parts = None

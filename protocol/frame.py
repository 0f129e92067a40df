"""Cuts a byte stream into frames.

    int32 size (big-endian), then `size` bytes

The size is the peer's word: it is refused before a byte is kept for it when it is negative or larger than allowed.
"""

from kbroker.protocol.primitives import BytesLike

SIZE_BYTES = 4


class FrameError(ValueError):
    """A frame size that no frame of ours may have; the connection cannot go on."""


def frame_size(prefix: BytesLike, max_size: int, position: int = 0) -> int:
    """Return the size that four bytes announce; raises FrameError for one below 0 or above `max_size`."""
    size = int.from_bytes(prefix[position : position + SIZE_BYTES], "big", signed=True)
    if size < 0:
        raise FrameError(f"a frame announces a negative size ({size} bytes)")
    if size > max_size:
        raise FrameError(f"a frame announces {size} bytes, {max_size} are allowed")
    return size


class FrameCutter:
    """Takes bytes as they come and gives whole frames, without their size prefix. No I/O."""

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._pending = bytearray()
        self._wanted = -1

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait for the rest of their frame."""
        return len(self._pending)

    def feed(self, received: BytesLike) -> list[bytes]:
        """Add bytes and return the frames they complete; raises FrameError, after which nothing more may be fed."""
        if not self._pending and self._wanted < 0:
            return self._cut(memoryview(received))
        self._pending += received
        if self._wanted >= 0 and len(self._pending) < self._wanted:
            return []
        collected, self._pending = self._pending, bytearray()
        return self._cut(memoryview(collected))

    def _cut(self, view: memoryview) -> list[bytes]:
        """Cut a view that starts with a size (or, when that is known already, with the frame itself)."""
        frames = []
        position = 0
        while True:
            if self._wanted < 0:
                if len(view) - position < SIZE_BYTES:
                    break
                self._wanted = frame_size(view, self.max_size, position)
                position += SIZE_BYTES
            if len(view) - position < self._wanted:
                break
            frames.append(bytes(view[position : position + self._wanted]))
            position += self._wanted
            self._wanted = -1
        self._pending += view[position:]
        return frames

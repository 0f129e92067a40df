"""How long a frame may be.

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

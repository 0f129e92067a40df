"""Frames out of a byte stream, however it is cut."""

import pytest

from kbroker.protocol.frame import FrameCutter, FrameError, frame_size

STREAM = b"\x00\x00\x00\x03abc" + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x02de"


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 100])
def test_frames_come_out_whole_however_the_bytes_arrive(step: int) -> None:
    cutter = FrameCutter(max_size=3)
    frames = [frame for at in range(0, len(STREAM), step) for frame in cutter.feed(STREAM[at : at + step])]
    assert frames == [b"abc", b"", b"de"]
    assert cutter.pending_bytes == 0


def test_half_a_frame_waits() -> None:
    cutter = FrameCutter(max_size=10)
    assert cutter.feed(STREAM[:6]) == []
    assert cutter.pending_bytes == 2


def test_a_size_beyond_the_limit_or_below_zero_is_refused_before_its_bytes_come() -> None:
    with pytest.raises(FrameError, match="announces 11 bytes, 10 are allowed"):
        FrameCutter(max_size=10).feed(b"\x00\x00\x00\x0b")
    with pytest.raises(FrameError, match="-1 bytes"):
        frame_size(b"\xff\xff\xff\xff", max_size=10)

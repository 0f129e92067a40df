"""Which sizes a frame may announce."""

import pytest

from kbroker.protocol.frame import FrameError, frame_size


def test_a_size_is_four_bytes_wherever_they_stand() -> None:
    assert frame_size(b"xx\x00\x00\x01\x02y", max_size=258, position=2) == 258


@pytest.mark.parametrize(
    ("prefix", "problem"),
    [(b"\x00\x00\x00\x0b", "announces 11 bytes, 10 are allowed"), (b"\xff\xff\xff\xff", "-1 bytes")],
)
def test_a_size_beyond_the_limit_or_below_zero_is_refused(prefix: bytes, problem: str) -> None:
    with pytest.raises(FrameError, match=problem):
        frame_size(prefix, max_size=10)

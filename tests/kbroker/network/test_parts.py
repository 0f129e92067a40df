"""Parts of answers on their way out."""

import pytest

from kbroker.network.parts import SMALL_FILE_PART, gather, in_memory, part_size


class Slice:
    """Part of a file, as far as a connection knows."""

    def __init__(self, size: int, there: int | None = None) -> None:
        self.size = size
        self.there = size if there is None else there

    def fileno(self) -> int:
        return -1

    def read(self) -> bytes:
        return b"f" * self.there


def test_small_slices_of_files_are_read_in_place() -> None:
    parts = [b"ab", bytearray(b"c"), memoryview(b"def"), Slice(10)]
    assert in_memory(parts) == 16
    assert parts[3] == b"f" * 10


def test_large_slices_are_left_for_sendfile() -> None:
    large = Slice(SMALL_FILE_PART + 1)
    parts = [b"ab", large, b"c"]
    assert in_memory(parts) == -1
    assert gather(parts, 0, 1) == ([b"b"], 1, True)
    assert gather(parts, 2, 0) == ([b"c"], 1, False)
    assert part_size(large) == SMALL_FILE_PART + 1


def test_a_file_that_became_shorter_is_an_error() -> None:
    with pytest.raises(OSError, match="shorter"):
        in_memory([Slice(10, there=3)])

"""The lowest step of the codec, as the interpreter runs it; the compiled form is tested by all other modules."""

import sys

import pytest

from kbroker.protocol.records import raw


def test_numbers_of_every_length_come_back() -> None:
    for number in [0, -1, 63, -64, 64, 8191, 8192, 2**31 - 1, -(2**31), 2**62, -(2**62)]:
        target = bytearray(12)
        end = raw.put_varint(target, 1, number)
        assert end - 1 == raw.varint_size(number)
        assert raw.varlong(target, 1, end) == number
        assert raw.varint_end(target, 1) == end
        assert raw.varlong(target, 1, end - 1) == -(2**63)
        if abs(number) < 2**31:
            assert raw.varint(target, 1, end) == number


def test_numbers_too_long_for_their_type_are_none() -> None:
    assert raw.varint(bytes([255, 255, 255, 255, 16]), 0, 5) == -(2**63)
    assert raw.varint(bytes([255, 255, 255, 255, 255, 1]), 0, 6) == -(2**63)
    assert raw.varlong(bytes([255] * 9 + [2]), 0, 10) == -(2**63)


def test_only_bytes_in_a_row_have_an_address() -> None:
    raw.address(memoryview(b"abc"))
    for view in (memoryview(b"abcd")[::2], memoryview(bytearray(8)).cast("i")):
        with pytest.raises(ValueError, match="contiguous"):
            raw.address(view)
    with pytest.raises(ValueError, match="read-only"):
        raw.writable_address(memoryview(b"abc"))


def test_a_bytearray_is_made_longer_and_shorter() -> None:
    buffer = bytearray(b"abc")
    raw.resize(buffer, 10)
    assert len(buffer) == 10
    raw.resize(buffer, 2)
    assert buffer == b"ab"


def test_text_is_told_from_other_bytes() -> None:
    data = "grüße".encode()
    assert raw.is_text(data, 0, len(data))
    assert not raw.is_text(data, 0, 3)


def test_words_and_unsigned_numbers_are_in_the_machines_order() -> None:
    data = bytes(range(250, 256)) + bytes(10)
    assert raw.load_word(data, 3) == int.from_bytes(data[3:11], sys.byteorder)
    numbers = raw.uint64_address(memoryview(bytearray(17)))
    numbers[1] = 2**64 - 1
    assert numbers.tolist() == [0, 2**64 - 1]


def test_without_compiled_code_there_is_no_lock_to_give_back() -> None:
    state = raw.release_gil()
    raw.take_gil(state)
    assert state is None

"""Reader, Writer and the text of uuids."""

import pytest

from kbroker.protocol.errors import MalformedMessage
from kbroker.protocol.primitives import ZERO_UUID, Reader, Writer, uuid_from_text, uuid_to_text


def test_uuids_have_kafkas_text() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ") == bytes(15) + b"\x01"
    for bad in ("", "A" * 21, "A" * 21 + "B", "!" * 22):
        with pytest.raises(ValueError, match="uuid"):
            uuid_from_text(bad)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 0x7FFFFFFF, 0xFFFFFFFF])
def test_varints_are_read_as_written(value: int) -> None:
    writer = Writer()
    writer.write_varint(value)
    assert Reader(writer.to_bytes()).read_varint() == value


def test_a_varint_without_end_is_malformed() -> None:
    for wrong in (b"\xff" * 5, b"\xff\xff\xff\xff\x10", b"\x80"):
        with pytest.raises(MalformedMessage):
            Reader(wrong).read_varint()


def test_a_reader_never_passes_the_end() -> None:
    reader = Reader(b"abc")
    for length in (4, -1, 1 << 40):
        with pytest.raises(MalformedMessage):
            reader.read_bytes(length)
    assert reader.read_bytes(3) == b"abc"
    with pytest.raises(MalformedMessage):
        Reader(b"abc", 4)


def test_a_writer_grows() -> None:
    writer = Writer(1)
    for number in range(1000):
        writer.write_int64(number)
    assert writer.to_bytes() == b"".join(number.to_bytes(8, "big") for number in range(1000))


def test_integers_are_read_in_one_go_and_never_beyond_the_end() -> None:
    reader = Reader(bytes.fromhex("00000001 ffffffff 7fffffff 00"))
    for count in (4, -1, 1 << 61):
        with pytest.raises(MalformedMessage):
            reader.read_int32s(count)
    assert reader.read_int32s(3) == [1, -1, 0x7FFFFFFF]
    assert reader.read_int32s(0) == []

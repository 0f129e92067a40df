"""ZooKeeper's encoding: what is written is read, what is cut or false is told."""

import pytest
from kazoo.protocol import serialization

from kbroker.dev.stand_in import jute
from kbroker.dev.stand_in.jute import Malformed, Reader
from kbroker.dev.stand_in.operations import OPEN_ACL, Stat

WHOLE = (
    jute.int32(-7)
    + jute.int64(1 << 40)
    + b"\1"
    + jute.buffer(None)
    + jute.buffer(b"")
    + jute.text("ü")
    + jute.texts(["a", "b"])
    + jute.acl(OPEN_ACL)
)


def read_all(data: bytes) -> list[object]:
    reader = Reader(data)
    found: list[object] = [reader.int32(), reader.int64(), reader.boolean(), reader.buffer(), reader.buffer()]
    found += [reader.text(), reader.texts(), reader.acl()]
    assert reader.is_at_end
    return found


def test_what_is_written_is_read() -> None:
    assert read_all(WHOLE) == [-7, 1 << 40, True, None, b"", "ü", ["a", "b"], OPEN_ACL]
    assert serialization.stat_struct.unpack(jute.stat(Stat(*range(11)))) == tuple(range(11))


def test_what_is_cut_anywhere_is_malformed() -> None:
    for size in range(len(WHOLE)):
        with pytest.raises(Malformed):
            read_all(WHOLE[:size])


@pytest.mark.parametrize("data", [jute.int32(-2), jute.int32((1 << 31) - 1), jute.buffer(b"\xff\xfe")])
def test_false_lengths_and_texts_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        Reader(data).text()
    with pytest.raises(Malformed):
        Reader(jute.int32((1 << 31) - 1) + data).texts()

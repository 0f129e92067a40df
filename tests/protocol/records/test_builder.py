"""A batch being filled: when it is full, what its header says, what it refuses."""

from types import ModuleType

import pytest

from kbroker.protocol.records import builder
from kbroker.protocol.records.batch import check_batch
from kbroker.protocol.records.record import decode_batch
from tests.protocol.records import interpreted

both = pytest.mark.parametrize("module", [builder, interpreted.load()["builder"]], ids=["compiled", "interpreted"])


@both
def test_a_full_batch_takes_no_more(module: ModuleType) -> None:
    filling = module.BatchBuilder(300)
    taken = 0
    while filling.append(b"key", bytes(50), (), 5):
        taken += 1
    assert 0 < taken == filling.count
    assert filling.size <= 300
    assert check_batch(filling.build())[0].count == taken


@both
def test_an_empty_batch_takes_a_record_of_any_size(module: ModuleType) -> None:
    filling = module.BatchBuilder(100)
    assert filling.append(None, bytes(5000))
    assert not filling.append(None, b"")
    assert decode_batch(filling.build())[0].value == bytes(5000)


@both
def test_the_header_says_what_build_was_told(module: ModuleType) -> None:
    filling = module.BatchBuilder()
    filling.append(b"k", b"v", (), 5)
    header, _ = check_batch(filling.build(7, 2, 9, True, True, 100, 4, True))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.base_offset) == (7, 2, 9, 100)
    assert header.is_transactional
    assert header.is_control
    assert header.partition_leader_epoch == 4
    assert header.timestamp_type == 1


@both
def test_anything_but_bytes_is_refused_and_changes_nothing(module: ModuleType) -> None:
    filling = module.BatchBuilder()
    with pytest.raises(TypeError, match="bytes or None"):
        filling.append("text", b"v")
    with pytest.raises(ValueError, match="timestamp"):
        filling.append(b"k", b"v", (), -2)
    assert filling.count == 0
    assert filling.append(bytearray(b"k"), memoryview(b"v"))
    assert decode_batch(filling.build())[0].key == b"k"


@both
def test_room_to_begin_with_may_be_asked_for(module: ModuleType) -> None:
    filling = module.BatchBuilder(1 << 20, 0, None, 1 << 16)
    filling.append(b"k", b"v", (), 1)
    assert len(filling.build()) < 100


@both
def test_numbers_are_written_zig_zag(module: ModuleType) -> None:
    expected = {0: "00", -1: "01", 1: "02", 63: "7e", 64: "8001", -(2**31): "ffffffff0f", 2**31 - 1: "feffffff0f"}
    assert {number: module.encode_varint(number).hex() for number in expected} == expected

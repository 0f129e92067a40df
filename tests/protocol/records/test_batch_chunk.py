"""A piece of a log: whole and undamaged batches, and the keys in them."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.protocol.records import batch_chunk, offset_map
from kbroker.protocol.records.batch import stamp, write_crc
from kbroker.protocol.records.control import ControlType, control_batch
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from tests.protocol.records import interpreted
from tests.protocol.records.batches import batch_of, codecs

plain = interpreted.load()
FORMS = [
    (batch_chunk.BatchChunk, offset_map.OffsetMap),
    (plain["batch_chunk"].BatchChunk, plain["offset_map"].OffsetMap),
]
both = pytest.mark.parametrize("form", FORMS, ids=["compiled", "interpreted"])
Form = tuple[type, type]


def keyed(*keys: bytes | None, base_offset: int = 0, codec: int = 0, **fields: object) -> bytes:
    return batch_of([(key, b"value", [], 1) for key in keys], codec, base_offset=base_offset, **fields)


def mapped(form: Form, data: bytes, from_offset: int = 0, slots: int = 100) -> tuple[bool, int, Any]:
    chunk, keys = form[0](), form[1](24 * slots)
    assert chunk.read(data) == len(data)
    return chunk.add_keys_to(keys, from_offset), keys.latest_offset, keys


@both
@pytest.mark.parametrize("codec", [0, 2])
def test_it_takes_whole_batches_and_says_where_the_next_begins(form: Form, codec: int) -> None:
    first, second = keyed(b"a", b"b", codec=codec), keyed(b"c", base_offset=5, codec=codec)
    chunk = form[0]()
    assert chunk.read(first + second) == len(first + second)
    assert (chunk.count, chunk.record_count, chunk.next_offset, chunk.special) == (2, 3, 6, [])
    assert (chunk.header(1).base_offset, bytes(chunk.batch(1))) == (5, second)
    assert chunk.read((first + second)[:-1]) == len(first)
    assert chunk.next_offset == 2
    assert chunk.read(first[:-1]) == chunk.read(first[:20]) == 0
    with pytest.raises(IndexError):
        chunk.header(0)


@both
def test_markers_and_transactions_are_special(form: Form) -> None:
    marker = bytes(control_batch(ControlType.COMMIT, 7, 0, 1, 5, base_offset=2))
    data = keyed(b"a") + keyed(b"b", base_offset=1, producer_id=7, producer_epoch=0, transactional=True) + marker
    chunk = form[0]()
    chunk.read(data)
    assert chunk.special == [1, 2]


@both
def test_damage_is_refused(form: Form) -> None:
    chunk = form[0]()
    flipped = bytearray(keyed(b"a"))
    flipped[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        chunk.read(bytes(flipped))
    with pytest.raises(CorruptBatch, match=r"offsets 3\.\.3 follows 3"):
        chunk.read(keyed(b"a", base_offset=3) + keyed(b"a", base_offset=3))
    with pytest.raises(CorruptBatch, match="follows 9"):
        chunk.read(keyed(b"a", base_offset=3), 10)
    old = bytearray(keyed(b"a"))
    old[16] = 1
    with pytest.raises(InvalidRecord, match="magic"):
        chunk.read(bytes(old))


@both
@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("count", [1, 3, 2**31 - 1])
def test_a_count_that_lies_is_found_when_the_records_are_read(form: Form, codec: int, count: int) -> None:
    data = bytearray(keyed(b"a", b"b", codec=codec))
    data[57:61] = count.to_bytes(4, "big")
    write_crc(data, 0)
    with pytest.raises(InvalidRecord, match="do not fit"):
        mapped(form, bytes(data))


@pytest.mark.slow
@settings(deadline=None)
@given(
    batches=st.lists(
        st.tuples(codecs, st.lists(st.none() | st.binary(max_size=2), min_size=1, max_size=9)), max_size=6
    ),
    from_offset=st.integers(0, 30),
)
def test_the_map_holds_the_latest_offset_of_each_key(
    batches: list[tuple[int, list[bytes | None]]], from_offset: int
) -> None:
    data, offset = b"", 0
    expected: dict[bytes, int] = {}
    for codec, keys in batches:
        data += keyed(*keys, base_offset=offset, codec=codec)
        expected |= {key: offset + at for at, key in enumerate(keys) if key is not None and offset + at >= from_offset}
        offset += len(keys)
    for form in FORMS:
        complete, latest, keys_found = mapped(form, data, from_offset)
        assert complete
        assert latest == (offset - 1 if offset - 1 >= from_offset else -1)
        assert {key: keys_found.latest(key) for key in expected} == expected
        assert len(keys_found) == len(expected)


@both
@pytest.mark.parametrize("codec", [0, 1])
def test_a_full_map_ends_in_the_middle_of_a_batch(form: Form, codec: int) -> None:
    data = keyed(b"a", b"b", b"a", b"c", b"d", codec=codec)
    assert mapped(form, data, slots=4)[:2] == (False, 3)
    assert mapped(form, data, slots=3)[:2] == (False, 1)


@both
def test_discarded_batches_count_as_mapped_but_their_keys_do_not(form: Form) -> None:
    chunk, keys = form[0](), form[1](2400)
    chunk.read(keyed(b"a") + keyed(b"b", b"b", base_offset=1, codec=3))
    chunk.decide(1, discard=True)
    assert chunk.add_keys_to(keys, 0)
    assert (len(keys), keys.latest(b"b"), keys.latest_offset) == (1, -1, 2)


@both
def test_a_batch_keeps_its_offsets_where_compaction_removed_records(form: Form) -> None:
    data = bytearray(keyed(b"a", b"b"))
    data[23:27] = (9).to_bytes(4, "big")
    stamp(data, 0, 100, 0)
    write_crc(data, 0)
    complete, latest, keys = mapped(form, bytes(data))
    assert (complete, latest, keys.latest(b"b")) == (True, 109, 101)


def test_modules_are_told_apart() -> None:
    assert isinstance(plain["batch_chunk"], ModuleType)
    assert FORMS[0][0] is not FORMS[1][0]

"""What stays of batches when a log is compacted: against a model in plain Python, and rule by rule."""

import struct
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.protocol.records import batch_chunk, offset_map, record_filter
from kbroker.protocol.records.batch import BatchHeader, read_header, split_batches, verify_crc, write_crc
from kbroker.protocol.records.control import ControlType, control_batch, read_marker
from kbroker.protocol.records.errors import InvalidRecord
from kbroker.protocol.records.record import Record, decode_batch
from tests.protocol.records import interpreted
from tests.protocol.records.batches import Row, batch_of, codecs, headers

NOW = 1_000_000
RETENTION = 5_000
DELETE_HORIZON = 0x40

plain = interpreted.load()
COMPILED = {"batch_chunk": batch_chunk, "offset_map": offset_map, "record_filter": record_filter}
Form = dict[str, ModuleType]
both = pytest.mark.parametrize("form", [COMPILED, plain], ids=["compiled", "interpreted"])


@dataclass
class Outcome:
    """What one filtering gave."""

    data: bytes
    marks: list[tuple[int, ...]]
    filter: Any

    @property
    def headers(self) -> list[BatchHeader]:
        return [read_header(self.data, position) for position, _ in split_batches(self.data)]

    @property
    def records(self) -> list[Record]:
        return [r for position, size in split_batches(self.data) for r in decode_batch(self.data, position, size)]


def filtered(
    form: Form,
    data: bytes,
    latest: dict[bytes, int] | None = None,
    mapped_to: int = 1 << 40,
    now: int = NOW,
    newest: tuple[int, ...] = (),
    decide: dict[int, dict[str, bool]] | None = None,
    interval: int = 4096,
) -> Outcome:
    chunk, keys = form["batch_chunk"].BatchChunk(), form["offset_map"].OffsetMap(24 * 1000)
    for key, offset in (latest or {}).items():
        keys.add(key, offset)
    keys.latest_offset = mapped_to
    assert chunk.read(data) == len(data)
    for number, decision in (decide or {}).items():
        chunk.decide(number, **decision)
    filtering = form["record_filter"].RecordFilter(keys, now, RETENTION, interval)
    filtering.begin(struct.pack(f"={len(newest)}q", *newest))
    with filtering.filter(chunk) as kept:
        output = bytes(kept)
    assert all(verify_crc(output, position, size) for position, size in split_batches(output))
    return Outcome(output, filtering.marks, filtering)


def stamped(data: bytes, horizon: int) -> bytes:
    """The batch as a compaction left it that set its delete horizon."""
    batch = bytearray(data)
    assert read_header(batch).base_timestamp == horizon, "make the first record's timestamp the horizon"
    batch[22] |= DELETE_HORIZON
    write_crc(batch, 0)
    return bytes(batch)


keys = st.sampled_from([None, b"", b"a", b"b", b"c", b"d"])
values = st.none() | st.binary(max_size=200)
row = st.tuples(keys, values, headers, st.integers(0, 2**45))
a_batch = st.tuples(st.lists(row, min_size=1, max_size=8), codecs, st.booleans())


@pytest.mark.slow
@settings(deadline=None)
@given(
    batches=st.lists(a_batch, max_size=5),
    latest=st.dictionaries(st.sampled_from([b"", b"a", b"b", b"c"]), st.integers(0, 30)),
    mapped_to=st.integers(-1, 40),
    first_offset=st.integers(0, 2**40),
)
def test_the_latest_record_of_each_key_stays_as_it_was(
    batches: list[tuple[list[Row], int, bool]], latest: dict[bytes, int], mapped_to: int, first_offset: int
) -> None:
    data, offset = b"", first_offset
    for rows, codec, log_append_time in batches:
        data += batch_of(rows, codec, base_offset=offset, log_append_time=log_append_time, leader_epoch=3)
        offset += len(rows)
    latest = {key: first_offset + each for key, each in latest.items()}
    mapped_to += first_offset
    before = [r for position, size in split_batches(data) for r in decode_batch(data, position, size)]
    expected = [r for r in before if r.offset > mapped_to or (r.key is not None and r.offset >= latest.get(r.key, -1))]
    outcomes = [filtered(form, data, latest, mapped_to) for form in (COMPILED, plain)]
    assert outcomes[0].data == outcomes[1].data
    assert outcomes[0].records == expected
    sources = {read_header(data, position).base_offset: position for position, _ in split_batches(data)}
    for header in outcomes[0].headers:
        check_header(header, read_header(data, sources[header.base_offset]), expected)
    found = outcomes[0].filter
    assert (found.records_read, found.records_kept) == (len(before), len(expected))


def check_header(header: BatchHeader, source: BatchHeader, kept: list[Record]) -> None:
    """What a rewritten batch has of its source, and what follows from the records that stayed."""
    inside = [r for r in kept if header.base_offset <= r.offset <= header.last_offset]
    assert header.count == len(inside) > 0
    assert (header.last_offset_delta, header.partition_leader_epoch) == (source.last_offset_delta, 3)
    assert header.timestamp_type == source.timestamp_type
    assert header.compression == source.compression
    assert header.max_timestamp == max(r.timestamp for r in inside)
    if any(r.value is None for r in inside):
        assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW + RETENTION)
    elif header.count < source.count:
        assert header.base_timestamp == inside[0].timestamp


@both
@pytest.mark.parametrize("codec", range(5))
def test_a_batch_that_loses_nothing_is_copied(form: Form, codec: int) -> None:
    data = batch_of([(b"a", b"1", [], 5), (b"b", b"2", [("h", None)], 7)], codec)
    assert filtered(form, data).data == data
    assert filtered(form, data, {b"a": 0, b"b": 1}).data == data


@both
@pytest.mark.parametrize("codec", [0, 3])
def test_a_tombstone_gets_a_horizon_stays_until_then_and_goes(form: Form, codec: int) -> None:
    data = batch_of([(b"a", None, [], 500), (b"b", b"2", [], 400)], codec)
    once = filtered(form, data)
    assert [(h.has_delete_horizon, h.base_timestamp, h.max_timestamp) for h in once.headers] == [(True, 1_005_000, 500)]
    assert [(r.key, r.timestamp) for r in once.records] == [(b"a", 500), (b"b", 400)]
    again = filtered(form, once.data, now=1_004_999)
    assert again.data == once.data
    gone = filtered(form, once.data, now=1_005_000)
    assert [(r.key, r.timestamp, r.offset) for r in gone.records] == [(b"b", 400, 1)]
    assert [(h.has_delete_horizon, h.base_timestamp) for h in gone.headers] == [(True, 1_005_000)]


@both
def test_a_horizon_makes_deltas_longer(form: Form) -> None:
    rows: list[Row] = [(b"%d" % number, None, [], number) for number in range(500)]
    far = filtered(form, batch_of(rows), now=2**60)
    assert [(r.key, r.timestamp) for r in far.records] == [(key, timestamp) for key, _, _, timestamp in rows]
    assert len(far.data) > len(batch_of(rows)) + 7 * 500


@both
@pytest.mark.parametrize("codec", [0, 2])
def test_the_newest_batch_of_a_producer_stays_as_an_empty_one(form: Form, codec: int) -> None:
    rows: list[Row] = [(b"a", b"1", [], 50), (b"a", b"2", [], 60)]
    fields = {"producer_id": 9, "producer_epoch": 2, "leader_epoch": 4}
    data = batch_of(rows, codec, base_sequence=0, **fields)
    data += batch_of(rows, codec, base_offset=2, base_sequence=2, **fields)
    (empty,) = filtered(form, data, {b"a": 10}, newest=(1, 3, 8)[1:2]).headers
    assert (empty.base_offset, empty.last_offset, empty.count, empty.size) == (2, 3, 0, 61)
    assert (empty.producer_id, empty.producer_epoch, empty.last_sequence) == (9, 2, 3)
    assert (empty.base_timestamp, empty.max_timestamp, empty.attributes) == (-1, 60, 0)
    assert empty.partition_leader_epoch == 4
    emptied = filtered(form, data, {b"a": 10}, newest=(1, 3)).data
    assert len(emptied) == 122
    assert filtered(form, emptied, newest=(3,)).data == emptied[61:]
    assert filtered(form, emptied).data == b""


@both
def test_a_batch_without_producer_is_nobodys_newest(form: Form) -> None:
    assert filtered(form, batch_of([(b"a", b"1", [], 5)]), {b"a": 7}, newest=(0,)).data == b""


@both
@pytest.mark.parametrize("codec", [0, 4])
def test_a_discarded_batch_goes_or_leaves_its_head(form: Form, codec: int) -> None:
    data = batch_of([(b"a", b"1", [], 5)], codec, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    assert filtered(form, data, decide={0: {"discard": True}}).data == b""
    (empty,) = filtered(form, data, decide={0: {"discard": True}}, newest=(0,)).headers
    assert (empty.count, empty.is_transactional, empty.compression) == (0, True, 0)


@both
def test_markers_stay_get_a_horizon_and_go(form: Form) -> None:
    marker = bytes(control_batch(ControlType.COMMIT, 9, 1, 6, 77, base_offset=3))
    assert filtered(form, marker, decide={0: {"discard": False}}).data == marker
    ended = filtered(form, marker, decide={0: {"discard": False, "ends_empty_transaction": True}})
    (header,) = ended.headers
    assert (header.is_control, header.is_transactional, header.has_delete_horizon) == (True, True, True)
    assert (header.base_timestamp, ended.records[0].timestamp) == (NOW + RETENTION, 77)
    assert read_marker(ended.data) == (ControlType.COMMIT, 6)
    over = {0: {"discard": True, "ends_empty_transaction": True}}
    assert filtered(form, ended.data, decide=over, now=NOW + RETENTION).data == b""
    kept = {0: {"discard": True, "keep_empty": True, "ends_empty_transaction": True}}
    (empty,) = filtered(form, ended.data, decide=kept, now=NOW + RETENTION).headers
    assert (empty.count, empty.is_control, empty.has_delete_horizon, empty.producer_epoch) == (0, True, False, 1)


@both
def test_a_horizon_that_is_set_is_not_set_again(form: Form) -> None:
    data = stamped(batch_of([(b"a", b"1", [], 2_000_000), (b"b", None, [], 30)]), 2_000_000)
    assert filtered(form, data).data == data
    (kept,) = filtered(form, data, {b"a": 5}).headers
    assert (kept.has_delete_horizon, kept.base_timestamp, kept.max_timestamp) == (True, 2_000_000, 30)


@both
@pytest.mark.parametrize("codec", [0, 1])
def test_records_that_do_not_fit_their_batch_are_refused(form: Form, codec: int) -> None:
    data = bytearray(batch_of([(b"a", b"1", [], 5)], codec))
    data[60] = 2
    write_crc(data, 0)
    with pytest.raises(InvalidRecord, match="do not fit"):
        filtered(form, bytes(data))


@both
def test_a_mark_for_the_indexes_is_made_whenever_the_interval_has_passed(form: Form) -> None:
    data = b"".join(
        batch_of([(b"%d" % number, bytes(60), [], 500 + (number % 3))], base_offset=100 + number) for number in range(9)
    )
    size = len(data) // 9
    found = filtered(form, data, interval=2 * size)
    assert found.marks == [(103, 3 * size, 502, 102), (106, 6 * size, 502, 102)]
    assert (found.filter.max_timestamp, found.filter.max_timestamp_offset) == (502, 102)
    assert filtered(form, data, interval=9999).marks == []


@both
def test_keys_that_are_missing_are_counted_and_go(form: Form) -> None:
    found = filtered(form, batch_of([(None, b"1", [], 5), (b"a", b"1", [], 5)]))
    assert ([r.key for r in found.records], found.filter.null_keys) == ([b"a"], 1)

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records import builder, column_writer, columns, control, partitioner, record
from protocol.records.batch import read_header
from protocol.records.buffers import BinaryColumn
from tests.protocol.records import interpreted

plain = interpreted.load()
binaries = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=9), binaries), max_size=3)
rows = st.lists(st.tuples(binaries, binaries, headers, st.integers(-1, 2**62)), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(rows=rows, codec=st.sampled_from([0, 1, 2, 3, 4]))
def test_records_come_back_and_both_codecs_agree(rows, codec):
    batches = []
    for module in (builder, plain["builder"]):
        filling = module.BatchBuilder(1 << 20, codec)
        for key, value, extra, timestamp in rows:
            assert filling.append(key, value, extra, timestamp)
        batches.append(bytes(filling.build(1, 0, 0)))
    assert batches[0] == batches[1]
    for module in (record, plain["record"]):
        decoded = module.decode_batch(batches[0], topic="t", partition=3)
        assert [(r.key, r.value, list(r.headers), r.timestamp) for r in decoded] == rows
        assert [r.offset for r in decoded] == list(range(len(rows)))


@settings(max_examples=60, deadline=None)
@given(rows=rows, row_limit=st.integers(1, 60), codec=st.sampled_from([0, 4]))
def test_columns_hold_what_the_records_hold(rows, row_limit, codec):
    filling = builder.BatchBuilder(1 << 20, codec)
    for key, value, extra, timestamp in rows:
        filling.append(key, value, extra, timestamp)
    data = bytes(filling.build())
    for module in (columns, plain["columns"]):
        decoder = module.ColumnDecoder(row_limit, with_headers=True)
        found, position = [], 0
        while True:
            position = decoder.append(data, 3, decoder.next_offset, None, position)
            full = decoder.full
            part = decoder.finish()
            found += zip(cells(part.key, part.rows), cells(part.value, part.rows), part.offset.cast("q"), strict=True)
            if not full:
                break
        assert found == [(key, value, index) for index, (key, value, _, _) in enumerate(rows)]


def cells(column: BinaryColumn, rows: int) -> list[bytes | None]:
    offsets, data = memoryview(column.offsets).cast("B").cast("i"), bytes(column.data)
    return [
        None
        if column.null_count and not column.validity[row >> 3] >> (row & 7) & 1
        else data[offsets[row] : offsets[row + 1]]
        for row in range(rows)
    ]


def test_murmur2_is_javas():
    expected = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    for module in (partitioner, plain["partitioner"]):
        assert {key: module.murmur2(key) for key in expected} == expected


def test_both_column_writers_make_the_same_batches():
    keys = BinaryColumn(b"".join(i.to_bytes(4, "little") for i in range(0, 404, 4)), b"abcd" * 100)
    outcomes = []
    for module in (column_writer, plain["column_writer"]):
        encoder = module.ColumnEncoder(3, 300, producer_id=5, producer_epoch=0, sequences=[0, 2**31 - 2, 9])
        encoder.append(100, keys, None, 77)
        encoder.append(10, None, keys, 78)
        outcomes.append([(b.partition, bytes(b.batch), b.rows, b.base_sequence) for b in encoder.finish()])
    assert outcomes[0] == outcomes[1]
    assert sum(read_header(batch).count for _, batch, _, _ in outcomes[0]) == 110


def test_what_was_aborted_is_hidden_until_its_marker():
    def data(producer_id, offset):
        filling = builder.BatchBuilder()
        filling.append(b"k", b"v", (), 1)
        return bytes(filling.build(producer_id, 0, 0, transactional=True, base_offset=offset))

    marker = bytes(control.control_batch(control.ControlType.ABORT, 1, 0, 4, 5, base_offset=2))
    stream = data(1, 0) + data(2, 1) + marker + data(1, 3)
    decoder = columns.ColumnDecoder()
    assert decoder.append(stream, 0, 0, None, 0, control.AbortedTransactions([(1, 0)])) == len(stream)
    assert list(decoder.finish().offset.cast("q")) == [1, 3]
    assert control.read_marker(marker) == (control.ControlType.ABORT, 4)

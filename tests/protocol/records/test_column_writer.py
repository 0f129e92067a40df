"""Arrow columns written as batches: partitions, order, headers."""

from types import ModuleType

import pytest

from kbroker.protocol.records import column_writer
from kbroker.protocol.records.batch import read_header
from kbroker.protocol.records.buffers import BinaryColumn, HeadersColumn
from kbroker.protocol.records.errors import InvalidRecord
from kbroker.protocol.records.partitioner import partition_for_key
from kbroker.protocol.records.record import decode_batch
from tests.protocol.records import interpreted
from tests.protocol.records.batches import column_of

plain = interpreted.load()
both = pytest.mark.parametrize("module", [column_writer, plain["column_writer"]], ids=["compiled", "interpreted"])


def test_both_column_writers_make_the_same_batches() -> None:
    keys = BinaryColumn(b"".join(i.to_bytes(4, "little") for i in range(0, 404, 4)), b"abcd" * 100)
    outcomes = []
    for module in (column_writer, plain["column_writer"]):
        encoder = module.ColumnEncoder(3, 300, producer_id=5, producer_epoch=0, sequences=[0, 2**31 - 2, 9])
        encoder.append(100, keys, None, 77)
        encoder.append(10, None, keys, 78)
        outcomes.append([(b.partition, bytes(b.batch), b.rows, b.base_sequence) for b in encoder.finish()])
    assert outcomes[0] == outcomes[1]
    assert sum(read_header(batch).count for _, batch, _, _ in outcomes[0]) == 110


@both
def test_rows_go_where_their_keys_belong_and_stay_in_order(module: ModuleType) -> None:
    keys = [b"key%d" % (row % 7) for row in range(100)]
    encoder = module.ColumnEncoder(5, 400)
    encoder.append(100, column_of(list(keys)), column_of([b"%d" % row for row in range(100)]), 1)
    for made in encoder.finish():
        found = decode_batch(made.batch)
        assert {partition_for_key(r.key or b"", 5) for r in found} == {made.partition}
        numbers = [int(r.value or b"") for r in found]
        assert numbers == sorted(numbers)
        assert [numbers[0], numbers[-1]] == made.rows


@both
def test_keyless_rows_move_on_when_a_batch_is_full(module: ModuleType) -> None:
    encoder = module.ColumnEncoder(3, 300)
    encoder.append(9, None, column_of([bytes(100)] * 9), 1)
    assert [made.partition for made in encoder.take()] != []
    assert {made.partition for made in encoder.finish()} <= {0, 1, 2}


@both
def test_a_partition_that_does_not_exist_is_refused(module: ModuleType) -> None:
    encoder = module.ColumnEncoder(2)
    with pytest.raises(ValueError, match="no partition 2"):
        encoder.append(1, None, None, 1, None, (2).to_bytes(4, "little"))


@both
def test_header_keys_must_be_text(module: ModuleType) -> None:
    for key, message in ((b"\xff", "UTF-8"), (None, "without a key")):
        headers = HeadersColumn(bytes(4) + b"\1\0\0\0", column_of([key]), column_of([None]), 1)
        with pytest.raises(InvalidRecord, match=message):
            module.ColumnEncoder(1).append(1, None, None, 1, headers)


@both
def test_numbers_that_lie_anywhere_in_memory_are_read(module: ModuleType) -> None:
    times = memoryview(b"." + (77).to_bytes(8, "little"))[1:]
    encoder = module.ColumnEncoder(1)
    encoder.append(1, None, None, times)
    assert decode_batch(encoder.finish()[0].batch)[0].timestamp == 77

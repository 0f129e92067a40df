"""Slices of tables: buffers that start anywhere."""

import pytest

pa = pytest.importorskip("pyarrow")
table_rows = pytest.importorskip("kbroker.client.arrow")


@pytest.mark.parametrize("start", [0, 1, 7, 8, 9, 63])
def test_a_slices_buffers_hold_the_slices_rows(start: int) -> None:
    values = [None if i % 5 == 0 else b"%d" % i for i in range(100)]
    column = table_rows.binary_column(pa.array(values).slice(start, 30))
    assert table_rows.TableRows.row_bytes(column, 30) == values[start : start + 30]


def test_rows_come_in_order_and_all_of_them() -> None:
    table = pa.table({"v": [b"%d" % i for i in range(10_000)]})
    rows = table_rows.TableRows(table, None, "v", None, None, 5)
    found = [value for some in rows.slices(1000) for value in table_rows.TableRows.row_bytes(some.value, some.rows)]
    assert found == [b"%d" % i for i in range(10_000)]

"""Loads and stores, as interpreted modules use them."""

from kbroker.protocol import memory


def test_numbers_are_big_endian_and_signed() -> None:
    buffer = bytearray(8)
    for store, load in (
        (memory.store_int16, memory.load_int16),
        (memory.store_int32, memory.load_int32),
        (memory.store_int64, memory.load_int64),
    ):
        store(buffer, 0, -2)
        assert buffer[0] == 0xFF
        assert load(memoryview(buffer), 0) == -2
    memory.store_float64(buffer, 0, 1.5)
    assert memory.load_float64(memoryview(buffer), 0) == 1.5

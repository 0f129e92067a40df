"""Record codec speeds, compiled beside interpreted: python -m bench.records (from the checkout's root)."""

import os
import time
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from kbroker.protocol.records.buffers import BinaryColumn
from tests.protocol.records import interpreted

VALUE = os.urandom(200)


def rate(work: Callable[[], object], count: int) -> float:
    """Millions of records a second, the best within half a second (in warm memory, then)."""
    best = float("inf")
    until = time.perf_counter() + 0.5
    while time.perf_counter() < until:
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return count / best / 1e6


def fill(builder: ModuleType) -> bytearray:
    batch = builder.BatchBuilder(1 << 20)
    while batch.append(b"key12345", VALUE, (), 1_700_000_000_000):
        pass
    made: bytearray = batch.build()
    return made


def measure(modules: dict[str, ModuleType]) -> dict[str, float]:
    data = bytes(fill(modules["builder"]))
    count = modules["batch"].read_header(data).count
    decoder = modules["columns"].ColumnDecoder(1 << 20, 1 << 30)
    offsets = memoryview(bytearray(4 * (count + 1))).cast("i")
    for row in range(count + 1):
        offsets[row] = 200 * row
    values = BinaryColumn(offsets, VALUE * count)
    keys = BinaryColumn(memoryview(bytearray(4 * (count + 1))).cast("i"), os.urandom(8 * count))
    for row in range(count + 1):
        keys.offsets[row] = 8 * row  # type: ignore[index]

    def encode_columns() -> None:
        encoder = modules["column_writer"].ColumnEncoder(6, 1 << 17)
        encoder.append(count, keys, values, 1)
        encoder.finish()

    def decode_columns() -> None:
        decoder.append(data, 0)
        decoder.finish()

    return {
        "append": rate(lambda: fill(modules["builder"]), count),
        "check": rate(lambda: modules["batch"].check_batch(data), count),
        "decode records": rate(lambda: modules["record"].decode_batch(data), count),
        "decode columns": rate(decode_columns, count),
        "encode columns": rate(encode_columns, count),
    }


def main() -> None:
    compiled = measure({name: import_module(f"kbroker.protocol.records.{name}") for name in interpreted.NAMES})
    plain = measure(interpreted.load())
    print(f"{'M records/s of 200 bytes':26}{'compiled':>10}{'interpreted':>13}")
    for name, speed in compiled.items():
        print(f"{name:26}{speed:10.2f}{plain[name]:13.2f}")


if __name__ == "__main__":
    main()

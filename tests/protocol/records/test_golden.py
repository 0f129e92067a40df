"""What Kafka's own classes wrote once (tests/parity/Records.java), read and written again without Java.

golden/rows.txt      the records, as row_text writes them
golden/CODEC.hex     Java's batch of them
golden/murmur2.txt   keys and their hashes
"""

from pathlib import Path
from types import ModuleType

import pytest

from kbroker.protocol.records import batch, builder, columns, partitioner, record
from kbroker.protocol.records.compression import CompressionType
from tests.protocol.records import interpreted
from tests.protocol.records.batches import row_of, table

GOLDEN = Path(__file__).with_name("golden")
ROWS = [row_of(line) for line in (GOLDEN / "rows.txt").read_text().splitlines()]
plain = interpreted.load()


def both(compiled: ModuleType) -> pytest.MarkDecorator:
    other = plain[compiled.__name__.rpartition(".")[2]]
    return pytest.mark.parametrize("module", [compiled, other], ids=["compiled", "interpreted"])


def javas_batch(codec: CompressionType) -> bytes:
    return bytes.fromhex((GOLDEN / f"{codec.name.lower()}.hex").read_text())


@both(record)
@pytest.mark.parametrize("codec", list(CompressionType))
def test_javas_batches_are_read_as_records(module: ModuleType, codec: CompressionType) -> None:
    found = module.decode_batch(javas_batch(codec))
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in found] == ROWS


@both(columns)
@pytest.mark.parametrize("codec", list(CompressionType))
def test_javas_batches_are_read_as_columns(module: ModuleType, codec: CompressionType) -> None:
    decoder = module.ColumnDecoder(with_headers=True)
    decoder.append(javas_batch(codec), 0)
    expected = [(at, row[3] * 1000, 0, 0, *row[:3]) for at, row in enumerate(ROWS)]
    assert table(decoder.finish()) == expected


@both(batch)
@pytest.mark.parametrize("codec", list(CompressionType))
def test_javas_batches_pass_the_leaders_check(module: ModuleType, codec: CompressionType) -> None:
    data = javas_batch(codec)
    header, _ = module.check_batch(data, 0, len(data))
    assert (header.count, header.compression, header.max_timestamp) == (len(ROWS), codec, 2**41)
    assert module.validate_records(data, 0, len(data)).offset_of_max_timestamp == len(ROWS) - 1


@both(builder)
def test_we_write_what_java_writes(module: ModuleType) -> None:
    filling = module.BatchBuilder(1 << 20)
    for key, value, headers, timestamp in ROWS:
        filling.append(key, value, headers, timestamp)
    assert filling.build() == javas_batch(CompressionType.NONE)


@both(partitioner)
def test_keys_hash_as_java_hashed_them(module: ModuleType) -> None:
    lines = [line.split() for line in (GOLDEN / "murmur2.txt").read_text().splitlines()]
    assert [module.murmur2(bytes.fromhex(key[1:])) for key, _ in lines] == [int(number) for _, number in lines]

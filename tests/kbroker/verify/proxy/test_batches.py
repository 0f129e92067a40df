"""Batches changed on their way stay batches: whole, with a right checksum, their records untouched."""

from typing import Any

import pytest

from kbroker.protocol.records.batch import check_batch, read_header, verify_crc
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.record import decode_batch
from kbroker.verify.proxy.batches import emptied, joined, moved, split, without_producer


def build(base_offset: int, *values: bytes, compression: int = 0) -> bytes:
    builder = BatchBuilder(compression=compression)
    for value in values:
        builder.append(b"key", value, (), 1_000)
    return bytes(
        builder.build(
            producer_id=9,
            producer_epoch=2,
            base_sequence=5,
            transactional=True,
            base_offset=base_offset,
            leader_epoch=3,
        )
    )


def values(batch: Any) -> list[bytes]:
    return [bytes(record.value or b"") for record in decode_batch(batch)]


@pytest.mark.parametrize("compression", [0, 1])
def test_batches_are_cut_and_put_together(compression: int) -> None:
    both = build(7, b"a", b"b", compression=compression) + build(9, b"c", compression=compression)
    batches = split(both)
    assert [header.base_offset for header, _ in batches] == [7, 9]
    assert joined([data for _, data in batches]) == both
    assert [header.base_offset for header, _ in split(both[:-1])] == [7]


def test_what_are_no_batches_of_today_is_left_alone() -> None:
    old = bytearray(build(0, b"a"))
    old[16] = 1
    assert split(old) == []
    assert split(None) == []
    assert split(b"") == []
    assert split(b"\xff" * 200) == []


@pytest.mark.parametrize("compression", [0, 1])
def test_an_emptied_batch_keeps_its_offsets_alone(compression: int) -> None:
    (batch,) = split(build(7, b"a", b"b", compression=compression))
    empty = emptied(batch)
    header = read_header(empty)
    assert (header.base_offset, header.last_offset, header.count, header.size) == (7, 8, 0, len(empty))
    assert header.is_transactional
    assert verify_crc(empty, 0, len(empty))
    assert values(empty) == []


@pytest.mark.parametrize("compression", [0, 1])
def test_a_batch_becomes_nobodys(compression: int) -> None:
    (batch,) = split(build(7, b"a", b"b", compression=compression))
    plain = without_producer(batch)
    header, _ = check_batch(plain)
    assert not header.has_producer
    assert not header.is_transactional
    assert header.base_sequence == -1
    assert values(plain) == [b"a", b"b"]


def test_a_batch_moves_to_another_offset() -> None:
    (batch,) = split(build(7, b"a", b"b"))
    header, _ = check_batch(moved(batch, 100))
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (100, 101, 3)

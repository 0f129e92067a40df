"""Damage is told from what an answer has cut short."""

from __future__ import annotations

import pytest

from kbroker.protocol.records.builder import BatchBuilder
from tests.simulation.inspectors import LENGTH_ENDS, has_damage


def batches(count: int) -> bytearray:
    data = bytearray()
    for _ in range(count):
        builder = BatchBuilder()
        builder.append(None, b"value")
        data += builder.build()
    return data


def test_whole_batches_and_one_that_is_cut_short_are_no_damage() -> None:
    data = bytes(batches(2))
    assert not any(has_damage(data[:size]) for size in range(len(data) + 1))


@pytest.mark.parametrize("position", [LENGTH_ENDS - 1, 17, 40, -1])
def test_a_flipped_bit_is_found(position: int) -> None:
    data = batches(3)
    data[len(data) // 3 + position if position >= 0 else len(data) * 2 // 3 - 1] ^= 4
    assert has_damage(bytes(data))

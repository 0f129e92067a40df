from __future__ import annotations

from typing import Any

import pytest

from kbroker.coordinator.log_pieces import header_at, read_pieces
from tests.fixtures.data_path import TOPIC, Played, one_batch


async def test_a_log_is_handed_over_from_its_start_to_its_end_piece_by_piece(played: Played) -> None:
    await played.lead()
    partition_log: Any = played.logs.get(TOPIC, 0)
    for number in range(10):
        partition_log.append_as_leader(one_batch(b"%d" % number), 0, 1)
    offsets: list[int] = []

    def take(data: bytes, offset: int) -> int:
        position = 0
        while (header := header_at(data, position, partition_log)) is not None:
            offsets.append(header.base_offset)
            position += header.size
            offset = header.last_offset + 1
        return offset

    read_pieces(partition_log, 200, lambda: True, take)
    assert offsets == list(range(10))
    offsets.clear()
    read_pieces(partition_log, 200, lambda: len(offsets) < 3, take)
    assert 3 <= len(offsets) < 10


async def test_a_reader_that_gets_nowhere_is_stopped(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    await played.lead()
    partition_log: Any = played.logs.get(TOPIC, 0)
    partition_log.append_as_leader(one_batch(), 0, 1)
    read_pieces(partition_log, 1 << 20, lambda: True, lambda data, offset: offset)
    assert "nothing can be read at offset 0" in caplog.text

"""What a new coordinator makes of a log: later records win, tombstones, damage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kbroker.coordinator.transaction import COMPLETE_ABORT, EMPTY, NO_PARTITIONS, TransactionRecord
from kbroker.coordinator.transaction_loading import load_transactions
from kbroker.coordinator.transaction_records import transaction_key, transaction_value
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.segment.log import AppendOrigin, Log
from tests.fixtures.data_path import TOPIC, Played

RECORD = TransactionRecord(7, 0, 60_000, EMPTY, NO_PARTITIONS, 1_000)


def value(epoch: int) -> bytes:
    return transaction_value(RECORD._replace(producer_epoch=epoch))


def add(partition_log: Log, *records: tuple[bytes | None, bytes | None]) -> None:
    builder = BatchBuilder(1 << 20)
    for key, content in records:
        builder.append(key, content, (), 1)
    partition_log.append_as_leader(builder.build(), 0, 1, AppendOrigin.COORDINATOR)


def epochs(partition_log: Log) -> dict[str, int]:
    found = load_transactions(partition_log, 1 << 20)
    assert all(transactional_id == each.transactional_id for transactional_id, each in found.items())
    return {transactional_id: each.record.producer_epoch for transactional_id, each in found.items()}


@pytest.fixture
async def partition_log(tmp_path: Path) -> AsyncIterator[Log]:
    played = Played(tmp_path)
    await played.lead()
    found = played.logs.get(TOPIC, 0)
    assert found is not None
    yield found
    await played.close()


def test_the_last_record_wins_and_tombstones_remove(partition_log: Log) -> None:
    a, b = transaction_key("a"), transaction_key("b")
    add(partition_log, (a, value(1)), (b, value(2)))
    add(partition_log, (a, value(3)), (b, None))
    assert epochs(partition_log) == {"a": 3}
    add(partition_log, (b, transaction_value(RECORD._replace(state=COMPLETE_ABORT))))
    assert load_transactions(partition_log, 1 << 20)["b"].state is COMPLETE_ABORT


def test_what_cannot_be_read_is_told_and_left_out(partition_log: Log, caplog: pytest.LogCaptureFixture) -> None:
    add(partition_log, (transaction_key("a"), value(1)), (None, b"x"), (b"\0\0\0\x09x", value(1)), (b"\0\1\0\1x", b"?"))
    add(partition_log, (transaction_key("b"), b"\0\x09"), (transaction_key("c"), value(4)))
    assert epochs(partition_log) == {"a": 1, "c": 4}
    assert "offset 1 has no key" in caplog.text
    assert "offset 2 is left out" in caplog.text
    assert "offset 4 is left out" in caplog.text


def test_small_pieces_give_the_same(partition_log: Log) -> None:
    for number in range(30):
        add(partition_log, (transaction_key(f"id-{number % 10}"), value(number)))
    assert {each.record.producer_epoch for each in load_transactions(partition_log, 1).values()} == set(range(20, 30))


def test_reading_stops_when_nobody_wants_it(partition_log: Log) -> None:
    add(partition_log, (transaction_key("a"), value(1)))
    assert load_transactions(partition_log, 1 << 20, lambda: False) == {}

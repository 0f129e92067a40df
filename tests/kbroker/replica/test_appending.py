from __future__ import annotations

import asyncio
from pathlib import Path

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.replica.appending import ProduceBatch, is_slow
from kbroker.segment.log import AppendOrigin, AppendResult
from tests.fixtures.data_path import TOPIC, Played, one_batch


async def test_an_append_that_counts_at_once_leaves_nothing_to_wait_for(played: Played) -> None:
    await played.lead()
    batch = ProduceBatch(-1, 1000, dict)
    found = played.replicas.append(TOPIC, 0, one_batch(), -1, 0, 11, batch)
    assert isinstance(found, AppendResult)
    assert batch.future is None


async def test_only_large_batches_that_must_be_unpacked_are_slow(tmp_path: Path) -> None:
    played = Played(tmp_path, compression_type="gzip")
    await played.lead()
    hosted = played.replicas.hosted[TOPIC, 0]
    assert is_slow(hosted, one_batch(bytes(100_000)))
    assert not is_slow(hosted, one_batch(bytes(100)))
    bomb = one_batch(bytes(1000))
    bomb[22] = 4
    assert is_slow(hosted, bomb)
    await played.close()


async def test_a_slow_append_that_is_refused_says_why(tmp_path: Path) -> None:
    played = Played(tmp_path, compression_type="gzip")
    await played.lead()
    broken = one_batch(bytes(100_000))
    broken[-1] ^= 1
    batch = ProduceBatch(-1, 5000, dict)
    assert played.replicas.append(TOPIC, 0, broken, -1, 0, 11, batch) is None
    assert batch.future is not None
    outcome = (await asyncio.wait_for(batch.future, 5))[0]
    assert isinstance(outcome, KafkaError)
    assert outcome.code is ErrorCode.CORRUPT_MESSAGE
    await played.close()


async def test_a_coordinator_append_waits_for_the_flush_of_its_topic(tmp_path: Path) -> None:
    played = Played(tmp_path, flush_messages=1)
    await played.lead()
    result = await played.replicas.append_batch(TOPIC, 0, one_batch(), 5000, AppendOrigin.COORDINATOR)
    assert result.base_offset == 0
    assert played.replicas.hosted[TOPIC, 0].log.recovery_point == 1
    await played.close()

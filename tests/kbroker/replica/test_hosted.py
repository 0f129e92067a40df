from __future__ import annotations

from kbroker.protocol.errors import ErrorCode
from kbroker.replica.delayed import DelayedAnswer
from kbroker.segment.log_config import LogConfig
from tests.fixtures.data_path import TOPIC, Played


async def test_a_moved_high_watermark_reaches_the_log_and_those_who_wait(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    hosted = played.replicas.hosted[TOPIC, 0]
    delayed = DelayedAnswer(1000, list)
    delayed.results.append("appended")
    delayed.wait_for(0, hosted.acks, 0)
    before = hosted.changes
    hosted.high_watermark_moved()
    assert hosted.changes == before + 1
    assert delayed.future is not None
    assert delayed.future.result() == ["appended"]


async def test_losing_the_partition_fails_whatever_waits(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    hosted = played.replicas.hosted[TOPIC, 0]
    delayed = DelayedAnswer(1000, lambda results: [each.code for each in results])
    delayed.results += ["appended", "appended"]
    delayed.wait_for(0, hosted.acks, 9)
    delayed.wait_for(1, hosted.flush_acks, 9)
    played.replicas.drop((TOPIC, 0), ErrorCode.KAFKA_STORAGE_ERROR)
    assert delayed.future is not None
    assert delayed.future.result() == [ErrorCode.KAFKA_STORAGE_ERROR] * 2


async def test_the_low_watermark_counts_live_replicas_only(played: Played) -> None:
    await played.lead(replicas=(1, 2))
    hosted = played.replicas.hosted[TOPIC, 0]
    hosted.state.remotes[2].log_start_offset = -1
    assert (hosted.low_watermark({1, 2}), hosted.low_watermark({1})) == (-1, 0)


async def test_configuration_decides_about_flushes_and_the_isr(played: Played) -> None:
    await played.lead()
    hosted = played.replicas.hosted[TOPIC, 0]
    assert not hosted.needs_flush()
    played.replicas.apply_topic_config(TOPIC, LogConfig(flush_messages=1, min_insync_replicas=3))
    assert hosted.flush_messages == 1
    assert hosted.state.min_insync_replicas == 3

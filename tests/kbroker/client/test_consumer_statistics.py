import asyncio

from kbroker.client.assignment import Assignment
from kbroker.client.consumer import Consumer
from kbroker.client.consumer_statistics import Meter, of_partitions
from kbroker.client.types import TopicPartition
from tests.kbroker.client.group.members import fill, member, poll_until

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_rates_are_those_of_the_last_half_minute() -> None:
    meter = Meter(0.0, (0, 0))
    for second in range(1, 61):
        meter.note(float(second), (10 * second, 0))
    assert meter.rates(60.0, (700, 30)) == ((700 - 300) / 30, 1.0)
    assert meter.rates(90.0, (700, 30)) == (100 / 30, 1.0)


def test_samples_are_kept_for_each_second_only() -> None:
    meter = Meter(0.0, (0,))
    for number in range(10_000):
        meter.note(number / 100, (number,))
    assert len(meter._samples) <= 32


def test_the_lag_is_what_the_last_answer_had_beyond_what_was_given() -> None:
    assignment = Assignment()
    assignment.begin(A, offset=3).end_offset = 10
    assignment.begin(B, offset=3)
    assignment.states[B].pause(True)
    found = of_partitions(assignment)
    assert (found["records_lag"], found["records_lag_max"]) == ({A: 7}, 7)
    assert (found["positions"], found["assigned_partitions"], found["paused_partitions"]) == ({A: 3, B: 3}, 2, 1)


async def test_a_member_tells_what_it_reads_and_how_its_group_is(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 30)
    async with member(bootstrap, topic) as consumer:
        before = consumer.statistics()
        assert (before["records_consumed_total"], before["group_state"]) == (0, "out")
        assert (before["last_poll_seconds_ago"], before["last_rebalance_seconds_ago"]) == (None, None)
        await consumer.subscribe([topic])
        await poll_until(lambda: sum(consumer.positions.values()) == 30, consumer)
        await consumer.commit()
        found = consumer.statistics()
        assert (found["records_consumed_total"], found["records_lag_max"]) == (30, 0)
        assert found["bytes_consumed_total"] > 30
        assert found["fetch_total"] >= 1
        assert found["records_consumed_rate"] > 0
        assert (found["group_state"], found["rebalance_total"], found["commit_total"]) == ("stable", 1, 1)
        assert found["last_rebalance_seconds_ago"] >= found["last_poll_seconds_ago"] >= 0


async def test_without_a_group_nothing_is_said_of_one() -> None:
    async with Consumer("127.0.0.1:1") as consumer:
        await asyncio.sleep(0)
        assert "group_state" not in consumer.statistics()

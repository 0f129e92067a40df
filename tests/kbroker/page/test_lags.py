import time

from kbroker.client.admin import Admin
from kbroker.client.producer import Producer
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page.facts import Facts
from kbroker.page.lags import lags_of, sums, times_behind
from kbroker.page.options import PageOptions
from tests.kbroker.page.test_scan import fill

HOUR_MS = 3_600_000


async def test_lag_is_told_in_records_and_in_time(broker: BrokerProcess, topic_name: str) -> None:
    await fill(broker.bootstrap, topic_name, (10, 4))
    group = f"group-of-{topic_name}"
    first, second = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    async with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        hour_ago = int(time.time() * 1000) - HOUR_MS
        await producer.send_and_wait(topic_name, b"late", partition=0, timestamp_ms=hour_ago)
        await admin.alter_group_offsets(group, {first: 10, second: 4})
        facts = Facts(admin)
        lags = await lags_of(facts, await admin.list_group_offsets(group))
        assert [(lag.partition, lag.committed, lag.end, lag.lag) for lag in lags] == [
            (first, 10, 11, 1),
            (second, 4, 4, 0),
        ]
        behind = await times_behind(PageOptions(broker.bootstrap), lags)
        assert behind.keys() == {first}
        assert HOUR_MS <= behind[first] < 2 * HOUR_MS
        [sum_of_all] = await sums(facts, [group])
        assert (sum_of_all.partitions, sum_of_all.lag) == (2, 1)
        assert await sums(facts, [group], "another-topic") == []


async def test_a_topic_that_is_gone_has_no_lag_and_not_zero(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin:
        facts = Facts(admin)
        from kbroker.client.types import OffsetAndMetadata

        gone = TopicPartition(f"{topic_name}-gone", 0)
        [lag] = await lags_of(facts, {gone: OffsetAndMetadata(5)})
        assert (lag.end, lag.lag) == (None, None)
        assert await times_behind(PageOptions(broker.bootstrap), [lag]) == {}

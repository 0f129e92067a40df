"""DescribeLogDirs on a real broker."""

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.log_dirs import DescribeLogDirsRequest
from tests.kbroker.asking import Ask
from tests.kbroker.handlers.test_topics import create, topic


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_version_shows_the_partitions_asked_for(
    ask: Ask, broker: BrokerProcess, topic_name: str, version: int
) -> None:
    await create(ask, topic(topic_name, 3))
    wanted = [DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic_name, partitions=[0, 2])]
    answer = await ask(DescribeLogDirsRequest(topics=wanted), version)
    (directory,) = answer.results
    assert directory.error_code is ErrorCode.NONE
    assert directory.log_dir == str(broker.log_dir)
    (shown,) = directory.topics
    assert shown.name == topic_name
    assert sorted((p.partition_index, p.partition_size, p.offset_lag) for p in shown.partitions) == [
        (0, 0, 0),
        (2, 0, 0),
    ]
    if version >= 4:
        assert directory.total_bytes > directory.usable_bytes > 0


async def test_null_shows_everything(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    answer = await ask(DescribeLogDirsRequest(topics=None), 4)
    assert topic_name in [each.name for each in answer.results[0].topics]

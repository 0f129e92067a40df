"""DescribeLogDirs on a real broker."""

from types import SimpleNamespace
from typing import cast

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.handlers import load_all
from kbroker.handlers.demands import Asked
from kbroker.handlers.registry import HANDLERS
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.log_dirs import DescribeLogDirsRequest
from kbroker.protocol.schema import schema_of
from kbroker.security.acls import AclOperation, AclResource
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


async def test_a_scrub_is_begun_and_told_under_its_id_and_nothing_is_described(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    wanted = [DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic_name, partitions=[0])]
    answer = await ask(DescribeLogDirsRequest(topics=wanted, scrub_id=b"s" * 16), 4)
    assert answer.results == []
    (scrub,) = answer.scrubs
    assert (scrub.is_over, scrub.segments, scrub.damages) == (True, 0, [])
    assert not (await ask(DescribeLogDirsRequest(topics=wanted), 4)).scrubs


@pytest.mark.parametrize(
    ("scrub_id", "operation"), [(bytes(16), AclOperation.DESCRIBE), (b"s" * 16, AclOperation.ALTER)]
)
def test_who_scrubs_must_be_allowed_to_alter_the_cluster(scrub_id: bytes, operation: AclOperation) -> None:
    load_all()
    asked: list[AclOperation] = []

    class Asking:
        request = DescribeLogDirsRequest(topics=None, scrub_id=scrub_id)

        def may(self, wanted: AclOperation, resource: AclResource) -> bool:
            asked.append(wanted)
            return True

    (demand,) = HANDLERS[schema_of(DescribeLogDirsRequest).api_key].demands
    demand(cast(Asked, Asking()))
    assert asked == [operation]


@pytest.mark.parametrize(("scrub_id", "ends"), [(bytes(16), True), (b"s" * 16, False)])
def test_describing_ends_with_the_connection_and_scrubbing_does_not(scrub_id: bytes, ends: bool) -> None:
    load_all()
    context = SimpleNamespace(ends_with_connection=None)
    request = DescribeLogDirsRequest(topics=None, scrub_id=scrub_id)
    HANDLERS[schema_of(DescribeLogDirsRequest).api_key].handler(None, context, request).close()
    assert context.ends_with_connection is ends

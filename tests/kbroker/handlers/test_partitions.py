"""CreatePartitions on a real broker."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbroker.controller.broker_store import NewTopic
from kbroker.controller.znodes import ReplicaAssignment
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.handlers.context import RequestContext, Services
from kbroker.handlers.partitions import create_partitions
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.topics import CreatePartitionsRequest
from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.kbroker.asking import Ask
from tests.kbroker.handlers.test_topics import create, describe, topic


async def extend(ask: Ask, name: str, count: int, given: list[list[int]] | None = None, **values: Any) -> Any:
    assignments = None
    if given is not None:
        assignments = [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=each) for each in given]
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    request = CreatePartitionsRequest(topics=[wanted], **{"timeout_ms": 10_000, "validate_only": False, **values})
    return (await ask(request)).results[0]


async def test_new_partitions_have_leaders_when_the_answer_comes(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name, 2))
    assert (await extend(ask, topic_name, 5)).error_code is ErrorCode.NONE
    partitions = (await describe(ask, topic_name)).partitions
    assert len(partitions) == 5
    assert all(p.leader_id == 1 for p in partitions)


async def test_validate_only_adds_nothing(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    assert (await extend(ask, topic_name, 3, validate_only=True)).error_code is ErrorCode.NONE
    assert len((await describe(ask, topic_name)).partitions) == 1


async def test_replicas_of_new_partitions_may_be_given(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    assert (await extend(ask, topic_name, 2, [[1]])).error_code is ErrorCode.NONE


@pytest.mark.parametrize(
    ("count", "given", "code", "said"),
    [
        (1, None, ErrorCode.INVALID_PARTITIONS, "higher than the requested 1"),
        (2, None, ErrorCode.INVALID_PARTITIONS, "already has 2 partitions"),
        ((1 << 31) - 1, None, ErrorCode.INVALID_PARTITIONS, "kbroker.max.partitions.per.topic"),
        (3, [[7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Unknown broker(s)"),
        (3, [[1], [1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "but 2 assignments"),
        (3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Duplicate"),
        (3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Inconsistent"),
    ],
)
async def test_what_cannot_be_is_refused(
    ask: Ask, topic_name: str, count: int, given: list[list[int]] | None, code: ErrorCode, said: str
) -> None:
    await create(ask, topic(topic_name, 2))
    refused = await extend(ask, topic_name, count, given)
    assert refused.error_code is code
    assert said in refused.error_message


async def test_an_unknown_topic_is_named(ask: Ask) -> None:
    refused = await extend(ask, "no-such-topic", 2)
    assert refused.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "no-such-topic" in refused.error_message


class Overtaken(ZooKeeper):
    """Between reading a topic and writing it, somebody else adds a partition, elsewhere than we would, once."""

    was_overtaken = False

    async def topics_to_delete(self, *, watch: bool = False) -> set[str]:
        if not self.was_overtaken:
            self.was_overtaken = True
            topic = (await self.read_topics(["t"]))["t"]
            more = {**topic.partitions, len(topic.partitions): ReplicaAssignment((2,))}
            await self.write_topic_assignment("t", replace(topic, partitions=more))
        return await super().topics_to_delete(watch=watch)


@pytest.mark.parametrize(
    ("count", "code", "there"), [(4, ErrorCode.REQUEST_TIMED_OUT, 4), (3, ErrorCode.INVALID_PARTITIONS, 3)]
)
async def test_partitions_that_somebody_else_adds_meanwhile_are_not_erased(
    zookeeper: ZooKeeperAddress, count: int, code: ErrorCode, there: int
) -> None:
    session = Overtaken(zookeeper.connect_string)
    await session.connect()
    try:
        await session.ensure_top_level_paths()
        await session.create_topics([NewTopic("t", bytes(15) + b"1", {0: [1], 1: [1]}, {})])
        services = SimpleNamespace(
            zookeeper=session,
            controller=SimpleNamespace(is_active=True),
            config=SimpleNamespace(kbroker_max_partitions_per_topic=10, kbroker_max_replicas_per_request=10),
            broker_id=1,
            metadata=SimpleNamespace(controller_id=1, brokers={1: SimpleNamespace(id=1, rack=None)}),
            quotas=None,
        )
        ctx = SimpleNamespace(api_version=3)
        wanted = CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=0, validate_only=False)
        answer = await create_partitions(cast(Services, services), cast(RequestContext, ctx), request)
        assert answer.results[0].error_code is code
        assert len((await session.read_topics(["t"]))["t"].partitions) == there
    finally:
        await session.close()

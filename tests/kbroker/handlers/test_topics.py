"""Creating and deleting topics on a real broker."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.config.broker_config import read_broker_config
from kbroker.controller.broker_store import NewTopic
from kbroker.handlers.context import RequestContext
from kbroker.handlers.demands import Asked
from kbroker.handlers.topics import _may_delete, create_topics, delete_topics, topics_told
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.replication import UpdateMetadataRequest
from kbroker.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.replica.turns import ERRAND, Errand
from kbroker.security.authorizer import Authorizer
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.asking import Ask, asking

LED_BY_1 = UpdateMetadataRequest.UpdateMetadataPartitionState(
    partition_index=0, controller_epoch=1, leader=1, leader_epoch=0, isr=[1], zk_version=0, replicas=[1]
)
BROKER_1 = UpdateMetadataRequest.UpdateMetadataBroker(id=1, endpoints=[])


def topic(name: str, partitions: int = 1, replicas: int = 1, **values: Any) -> Any:
    fields = {"assignments": [], "configs": [], **values}
    return CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, **fields
    )


def config(name: str, value: str | None) -> Any:
    return CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)


def replicas(partition: int, *brokers: int) -> Any:
    return CreateTopicsRequest.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))


async def create(ask: Ask, *topics: Any, version: int = 7, **values: Any) -> list[Any]:
    answer = await ask(CreateTopicsRequest(topics=list(topics), **{"timeout_ms": 10_000, **values}), version)
    return list(answer.topics)


async def delete(ask: Ask, *names: str, timeout_ms: int = 10_000) -> list[Any]:
    topics = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
    answer = await ask(DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms), 6)
    return list(answer.responses)


async def describe(ask: Ask, name: str) -> Any:
    wanted = MetadataRequest.MetadataRequestTopic(topic_id=ZERO_UUID, name=name)
    answer = await ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), 12)
    return answer.topics[0]


async def test_a_created_topic_has_leaders_when_the_answer_comes(ask: Ask, topic_name: str) -> None:
    (created,) = await create(ask, topic(topic_name, 3))
    assert created.error_code is ErrorCode.NONE
    assert (created.num_partitions, created.replication_factor) == (3, 1)
    assert created.topic_id != ZERO_UUID
    assert {entry.name: entry.value for entry in created.configs}["retention.ms"] == "-1"
    found = await describe(ask, topic_name)
    assert found.topic_id == created.topic_id
    assert sorted(p.partition_index for p in found.partitions) == [0, 1, 2]
    assert all(p.leader_id == 1 for p in found.partitions)


@pytest.mark.parametrize("version", range(2, 8))
async def test_every_version_creates_and_deletes(ask: Ask, topic_name: str, version: int) -> None:
    (created,) = await create(ask, topic(topic_name), version=version)
    assert created.error_code is ErrorCode.NONE
    old = min(version - 1, 5)
    answer = await ask(DeleteTopicsRequest(topic_names=[topic_name], timeout_ms=10_000), old)
    assert [each.error_code for each in answer.responses] == [ErrorCode.NONE]


async def test_the_broker_fills_in_partitions_and_replicas_that_are_minus_one(ask: Ask, topic_name: str) -> None:
    (created,) = await create(ask, topic(topic_name, -1, -1))
    assert (created.num_partitions, created.replication_factor) == (1, 1)


async def test_replicas_may_be_assigned_by_hand(ask: Ask, topic_name: str) -> None:
    (created,) = await create(ask, topic(topic_name, -1, -1, assignments=[replicas(0, 1), replicas(1, 1)]))
    assert created.error_code is ErrorCode.NONE
    assert len((await describe(ask, topic_name)).partitions) == 2


async def test_validate_only_creates_nothing(ask: Ask, topic_name: str) -> None:
    (checked,) = await create(ask, topic(topic_name, 4), validate_only=True)
    assert checked.error_code is ErrorCode.NONE
    assert checked.num_partitions == 4
    assert checked.topic_id == ZERO_UUID
    assert (await describe(ask, topic_name)).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_exists_is_refused(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name))
    (again,) = await create(ask, topic(topic_name))
    assert again.error_code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert topic_name in again.error_message


@pytest.mark.parametrize(
    ("wanted", "code", "said"),
    [
        (topic("bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics"),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "empty string"),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "249"),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "prohibited"),
        (topic("bad-1", 0), ErrorCode.INVALID_PARTITIONS, "larger than 0"),
        (topic("bad-2", -2), ErrorCode.INVALID_PARTITIONS, "larger than 0"),
        (topic("bad-3", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (topic("bad-4", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than available brokers: 1"),
        (topic("bad-5", 1, 1, assignments=[replicas(0, 1)]), ErrorCode.INVALID_REQUEST, "Both"),
        (topic("bad-6", -1, -1, assignments=[replicas(1, 1)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "consecutive"),
        (topic("bad-7", -1, -1, assignments=[replicas(0, 1, 1)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Duplicate"),
        (
            topic("bad-8", -1, -1, assignments=[replicas(0, 1), replicas(1, 1, 2)]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "same number",
        ),
        (topic("bad-9", configs=[config("no.such.key", "1")]), ErrorCode.INVALID_CONFIG, "Unknown topic config name"),
        (topic("bad-10", configs=[config("retention.ms", "soon")]), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (topic("bad-11", configs=[config("retention.ms", None)]), ErrorCode.INVALID_CONFIG, "Null value"),
        (topic("bad-12", configs=[config("cleanup.policy", "shred")]), ErrorCode.INVALID_CONFIG, "cleanup.policy"),
    ],
)
async def test_a_bad_topic_is_refused_with_its_code_and_a_clear_message(
    ask: Ask, wanted: Any, code: ErrorCode, said: str
) -> None:
    (refused,) = await create(ask, wanted)
    assert refused.error_code is code
    assert said in refused.error_message


async def test_one_bad_topic_does_not_keep_the_others_from_being_created(ask: Ask, topic_name: str) -> None:
    good, bad = await create(ask, topic(topic_name), topic("no good"))
    assert good.error_code is ErrorCode.NONE
    assert bad.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("validate_only", [True, False])
async def test_more_partitions_than_anybody_means_are_refused_at_once(
    ask: Ask, topic_name: str, validate_only: bool
) -> None:
    (refused,) = await create(ask, topic(topic_name, (1 << 31) - 1), validate_only=validate_only)
    assert refused.error_code is ErrorCode.INVALID_PARTITIONS
    assert "kbroker.max.partitions.per.topic" in refused.error_message


async def test_topics_whose_names_zookeeper_could_not_list_any_more_are_refused(make_broker: MakeBroker) -> None:
    async with asking(make_broker(properties={"kbroker.max.topic.names.bytes": "30"})) as ask:
        good, bad = await create(ask, topic("ten-chars1"), topic("thirteen-char"))
        assert good.error_code is ErrorCode.NONE
        assert bad.error_code is ErrorCode.POLICY_VIOLATION
        assert "kbroker.max.topic.names.bytes" in bad.error_message
        (later,) = await create(ask, topic("thirteen-char"))
        assert later.error_code is ErrorCode.POLICY_VIOLATION
        (short,) = await create(ask, topic("twelve-chars"))
        assert short.error_code is ErrorCode.NONE


async def test_a_name_asked_for_twice_is_refused(ask: Ask, topic_name: str) -> None:
    refused = await create(ask, topic(topic_name), topic(topic_name))
    assert [each.error_code for each in refused] == [ErrorCode.INVALID_REQUEST] * 2


async def test_names_that_collide_in_metrics_are_refused(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(f"{topic_name}.x"))
    (refused,) = await create(ask, topic(f"{topic_name}_x"))
    assert refused.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "collides" in refused.error_message


async def test_no_time_to_wait_is_a_time_out_although_the_topic_comes(ask: Ask, topic_name: str) -> None:
    (late,) = await create(ask, topic(topic_name), timeout_ms=0)
    assert late.error_code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_who_has_topics_made_or_deleted_only_waits_once_that_is_written(is_deleted: bool) -> None:
    """For brokers to hear of it: any number may, and they keep nobody from making others."""
    written: list[str] = []
    cache = MetadataCache()
    state = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name="t", partition_states=[LED_BY_1])
    none, here = (
        UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=states, live_brokers=[BROKER_1])
        for states in ([], [state])
    )
    cache.update(here if is_deleted else none)

    async def create_topics_in_zookeeper(topics: list[NewTopic]) -> dict[str, None]:
        written.extend(each.name for each in topics)
        return dict.fromkeys(each.name for each in topics)

    class Asked(Errand):
        def only_waits(self) -> None:
            assert written == ["t"]
            asyncio.get_running_loop().call_soon(*((cache.forget, ["t"]) if is_deleted else (cache.update, here)))

    services: Any = SimpleNamespace(
        broker_id=1,
        config=read_broker_config({"zookeeper.connect": "z:1", "broker.id": "1"}),
        configs=SimpleNamespace(check_topic_overrides=lambda overrides: None),
        controller=SimpleNamespace(is_active=True, state=SimpleNamespace(is_being_deleted=lambda name: False)),
        metadata=cache,
        quotas=None,
        zookeeper=SimpleNamespace(
            create_topics=create_topics_in_zookeeper,
            mark_topic_deleted=AsyncMock(side_effect=written.append),
            topics_to_delete=AsyncMock(return_value=set()),
        ),
    )
    ctx: Any = SimpleNamespace(api_version=4)
    token = ERRAND.set(Asked())
    answer: Any
    if is_deleted:
        answer = await delete_topics(services, ctx, DeleteTopicsRequest(topic_names=["t"], timeout_ms=20_000))
    else:
        answer = await create_topics(services, ctx, CreateTopicsRequest(topics=[topic("t")], timeout_ms=20_000))
    ERRAND.reset(token)
    assert [each.error_code for each in (answer.responses if is_deleted else answer.topics)] == [ErrorCode.NONE]


async def test_a_deleted_topic_is_gone_when_the_answer_comes(ask: Ask, topic_name: str) -> None:
    await create(ask, topic(topic_name, 2))
    (deleted,) = await delete(ask, topic_name)
    assert deleted.error_code is ErrorCode.NONE
    assert (await describe(ask, topic_name)).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_may_be_deleted_by_id_and_made_again(ask: Ask, topic_name: str) -> None:
    (created,) = await create(ask, topic(topic_name))
    by_id = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=created.topic_id)
    answer = await ask(DeleteTopicsRequest(topics=[by_id], timeout_ms=10_000), 6)
    assert [(each.error_code, each.name) for each in answer.responses] == [(ErrorCode.NONE, topic_name)]
    (again,) = await create(ask, topic(topic_name))
    assert again.error_code is ErrorCode.NONE
    assert again.topic_id != created.topic_id


@pytest.mark.parametrize("only_checked", [True, False])
async def test_a_topic_whose_deletion_waits_for_a_broker_is_not_there_to_be_made_again(
    make_broker: MakeBroker, only_checked: bool
) -> None:
    async with asking(make_broker()) as ask:
        await create(ask, topic("t", -1, -1, assignments=[replicas(0, 1, 99)]))
        (deleted,) = await delete(ask, "t", timeout_ms=0)
        assert deleted.error_code is ErrorCode.REQUEST_TIMED_OUT
        async with asyncio.timeout(20):
            while (await describe(ask, "t")).error_code is ErrorCode.NONE:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        (refused,) = await create(ask, topic("t"), validate_only=only_checked)
        assert refused.error_code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert refused.error_message == "Topic 't' is marked for deletion."


async def test_a_controller_that_has_not_been_told_of_the_cluster_yet_says_that_it_is_none() -> None:
    """It would say that there are too few brokers and no such topic, and nobody would ask again."""
    cache = MetadataCache()
    cache.introduced.clear()
    services: Any = SimpleNamespace(controller=SimpleNamespace(is_active=True), metadata=cache, broker_id=1)
    ctx: Any = SimpleNamespace(api_version=5)
    deletion = DeleteTopicsRequest(topic_names=["t"], timeout_ms=0)
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        await create_topics(services, ctx, CreateTopicsRequest(topics=[topic("t")], timeout_ms=0))
    # It is told of the brokers first, then of the topics.
    cache.update(UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[], live_brokers=[]))
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        await delete_topics(services, ctx, deletion)
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        topics_told(Asked(services, ctx, deletion, Authorizer().authority("User:anna", "10.0.0.1")))


async def test_deleting_what_is_not_there_is_an_error(ask: Ask) -> None:
    (unknown,) = await delete(ask, "never-created")
    assert unknown.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=bytes(15) + b"\x07")
    answer = await ask(DeleteTopicsRequest(topics=[by_id], timeout_ms=10_000), 6)
    assert answer.responses[0].error_code is ErrorCode.UNKNOWN_TOPIC_ID


def test_an_id_that_nobody_has_when_rights_are_looked_at_is_unknown_whatever_becomes_known_meanwhile() -> None:
    """A large request is judged in turns: the topic may come into the cache behind that, and is nobody's to delete."""
    known: dict[bytes, Any] = {}
    services: Any = SimpleNamespace(metadata=SimpleNamespace(topic_by_id=lambda topic_id: known.get(bytes(topic_id))))
    authority = Authorizer().authority("User:mallory", "10.0.0.1")
    ctx = RequestContext(20, 6, 1, "x", 0, SimpleNamespace(authority=authority, listener="CLIENTS"))
    ids = [bytes(15) + bytes([number]) for number in (7, 8)]
    states = [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=each) for each in ids]
    asked = Asked(services, ctx, DeleteTopicsRequest(topics=states, timeout_ms=1), authority)
    steps = _may_delete(asked)
    next(steps)
    next(steps)
    known[ids[0]] = SimpleNamespace(name="secret", partitions={})
    for _ in steps:
        pass
    assert not asked.is_left
    told = {bytes(each.topic_id): (each.name, each.error_code) for each in asked.complete(None).responses}
    assert told == dict.fromkeys(ids, (None, ErrorCode.UNKNOWN_TOPIC_ID))


async def test_a_name_and_an_id_together_are_refused(ask: Ask) -> None:
    both = DeleteTopicsRequest.DeleteTopicState(name="a", topic_id=bytes(15) + b"\x07")
    answer = await ask(DeleteTopicsRequest(topics=[both], timeout_ms=10_000), 6)
    assert answer.responses[0].error_code is ErrorCode.INVALID_REQUEST

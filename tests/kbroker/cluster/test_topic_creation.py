"""Planning topics without a cluster; creating them for real is in handlers/test_topics.py."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster import topic_creation
from kbroker.cluster.metadata_cache import BrokerInfo, MetadataCache
from kbroker.cluster.topic_creation import (
    CreationLimit,
    TopicRequest,
    automatic_topic,
    check_manual_assignment,
    new_topic_id,
    plan_topic,
    wait_for_leaders,
)
from kbroker.config.broker_config import read_broker_config
from kbroker.config.dynamic_config import DynamicConfig
from kbroker.controller.broker_store import NewTopic
from kbroker.controller.znode_operations import SessionExpired
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.primitives import uuid_to_text
from kbroker.security.limited_lines import LINES_EACH
from tests.fixtures.others import Others


def services(**properties: str) -> Any:
    given = {key.replace("__", "."): value for key, value in properties.items()}
    config = read_broker_config({"zookeeper.connect": "z:1", "broker.id": "1", **given})
    metadata = SimpleNamespace(
        topics={"there": None},
        topics_refused=0,
        under_way=set(),
        brokers={number: BrokerInfo(number, None, {}) for number in (1, 2, 3)},
    )
    configs = DynamicConfig(config, None, 1)  # type: ignore[arg-type]
    return SimpleNamespace(config=config, metadata=metadata, configs=configs)


def test_a_plan_has_replicas_for_each_partition() -> None:
    plan = plan_topic(services(), TopicRequest("t", 6, 2, config={"retention.ms": "5"}))
    assert sorted(plan.assignment) == list(range(6))
    assert all(len(set(replicas)) == 2 for replicas in plan.assignment.values())
    assert plan.config == {"retention.ms": "5"}


def test_numbers_that_are_left_open_come_from_the_broker() -> None:
    plan = plan_topic(services(num__partitions="4", default__replication__factor="3"), TopicRequest("t"))
    assert [len(replicas) for replicas in plan.assignment.values()] == [3] * 4


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (TopicRequest("t", (1 << 31) - 1, 1), "kbroker.max.partitions.per.topic"),
        (TopicRequest("t", 11, 1), "A topic can have 10 partitions at most, not 11"),
        (TopicRequest("t", 10, 3), "kbroker.max.replicas.per.request"),
        (TopicRequest("t", 1, 32_767), "One request can create 20 replicas at most"),
        (TopicRequest("t", assignment={each: [1] for each in range(11)}), "kbroker.max.partitions.per.topic"),
        (TopicRequest("t", assignment={0: list(range(21))}), "kbroker.max.replicas.per.request"),
    ],
)
def test_what_is_too_much_is_refused_before_it_is_placed(wanted: TopicRequest, said: str) -> None:
    limited = services(kbroker__max__partitions__per__topic="10", kbroker__max__replicas__per__request="20")
    with pytest.raises(KafkaError, match=said) as refused:
        plan_topic(limited, wanted)
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS


def test_the_topics_of_a_request_share_its_limit() -> None:
    limited = services(kbroker__max__replicas__per__request="20")
    limit = CreationLimit(limited.config)
    plan_topic(limited, TopicRequest("a", 5, 3), limit)
    with pytest.raises(KafkaError, match=r"and this is one for 27 or more"):
        plan_topic(limited, TopicRequest("b", 4, 3), limit)
    plan_topic(limited, TopicRequest("c", 5, 1), limit)


def test_a_topic_that_makes_zookeepers_list_of_topics_too_long_to_be_read_is_refused() -> None:
    parts = services(kbroker__max__topic__names__bytes="30")  # "there" takes nine
    limit = CreationLimit(parts.config, parts.metadata)
    plan_topic(parts, TopicRequest("eleven-char", 1, 1), limit)
    with pytest.raises(
        KafkaError, match=r"take 31 bytes .* kbroker.max.topic.names.bytes allows 30: delete"
    ) as refused:
        plan_topic(parts, TopicRequest("abc", 1, 1), limit)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    plan_topic(parts, TopicRequest("ab", 1, 1), limit)
    with pytest.raises(KafkaError, match="take 31 bytes"):
        plan_topic(parts, TopicRequest("eighteen-chars-now", 1, 1))
    assert parts.metadata.topics_refused == 2


def test_internal_topics_are_made_however_many_topics_there_are() -> None:
    parts = services(kbroker__max__topic__names__bytes="1")
    assert plan_topic(parts, automatic_topic(parts.config, "__consumer_offsets")).name == "__consumer_offsets"


async def test_topics_made_without_being_asked_for_share_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    async def written(parts: Any, topics: Sequence[NewTopic]) -> dict[str, None]:
        return {topic.name: None for topic in topics}

    monkeypatch.setattr(topic_creation, "write_topics", written)
    parts = services(kbroker__max__topic__names__bytes="20")
    codes = await topic_creation.create_missing_topics(parts, ["seven-7", "eight-88"])
    assert codes == {"seven-7": ErrorCode.LEADER_NOT_AVAILABLE, "eight-88": ErrorCode.POLICY_VIOLATION}


async def test_others_have_their_turns_while_many_topics_are_made_without_being_asked_for(
    monkeypatch: pytest.MonkeyPatch, others: Others, caplog: pytest.LogCaptureFixture
) -> None:
    async def written(parts: Any, topics: Sequence[NewTopic]) -> dict[str, None]:
        return {topic.name: None for topic in topics}

    monkeypatch.setattr(topic_creation, "write_topics", written)
    before = others.turns
    with caplog.at_level("INFO", topic_creation.__name__):
        await topic_creation.create_missing_topics(services(), [f"t{number}" for number in range(100)])
    assert others.turns - before >= 99
    assert caplog.messages == ["created automatically: t0, t1, t2 and 97 more"]


async def test_a_topic_is_made_once_however_many_ask_and_so_many_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that ask and leave while ZooKeeper hangs would have the broker hold ever more."""
    monkeypatch.setattr(topic_creation, "MOST_UNDER_WAY", 3)
    monkeypatch.setattr(topic_creation, "FEW", 2)
    written: list[list[str]] = []
    may_end = asyncio.Event()

    async def write(parts: Any, topics: Sequence[NewTopic]) -> dict[str, None]:
        written.append([topic.name for topic in topics])
        await may_end.wait()
        return {topic.name: None for topic in topics}

    monkeypatch.setattr(topic_creation, "write_topics", write)
    parts = services()
    asked = ["a", "b"], ["b", "a"], ["c", "a", "d"], ["e", "f"], ["g", "h", "i"]
    asking = [asyncio.create_task(topic_creation.create_missing_topics(parts, names)) for names in asked]
    async with asyncio.timeout(20):
        while len(written) < 3:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        for number in (1, 4):
            assert await asking[number] == dict.fromkeys(asked[number], ErrorCode.LEADER_NOT_AVAILABLE)
        may_end.set()
        for names, each in zip(asked, asking, strict=True):
            assert await each == dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE)
    assert sorted(written) == [["a", "b"], ["c"], ["e", "f"]]
    assert not parts.metadata.under_way


async def test_topics_that_cannot_be_made_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    parts = services(default__replication__factor="4")
    with caplog.at_level("INFO", topic_creation.__name__):
        for _ in range(100):
            await topic_creation.create_missing_topics(parts, ["one", "two"])
    assert caplog.messages[0] == "cannot be created automatically, INVALID_REPLICATION_FACTOR: one, two"
    assert len(caplog.messages) <= LINES_EACH


async def test_topics_that_zookeeper_does_not_take_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Tens of thousands may be in work when its session ends."""

    class LostZooKeeper:
        async def create_topics(self, topics: Sequence[NewTopic]) -> None:
            raise SessionExpired("the ZooKeeper session is over")

    parts = SimpleNamespace(zookeeper=LostZooKeeper())
    planned = [NewTopic(f"t{number}", bytes(16), {0: [1]}, {}) for number in range(1000)]
    errors = await topic_creation.write_topics(parts, planned)
    assert list(errors) == [topic.name for topic in planned]
    assert {error.code for error in errors.values() if error} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    (line,) = caplog.messages
    assert line == (
        "1000 topic(s) could not be written to ZooKeeper, t0, t1, t2 and 997 more: the ZooKeeper session is over"
    )


def test_a_topic_that_is_there_is_refused() -> None:
    with pytest.raises(KafkaError, match="already exists"):
        plan_topic(services(), TopicRequest("there"))


@pytest.mark.parametrize(
    "assignment", [{1: [1]}, {0: [1], 2: [1]}, {0: []}, {0: [1, 1]}, {0: [-1]}, {0: [1], 1: [1, 2]}]
)
def test_an_assignment_that_cannot_be_is_refused(assignment: Mapping[int, list[int]]) -> None:
    with pytest.raises(KafkaError, match="INVALID_REPLICA_ASSIGNMENT"):
        check_manual_assignment(assignment)


def test_internal_topics_have_settings_of_their_own() -> None:
    offsets = automatic_topic(services().config, "__consumer_offsets")
    assert (offsets.partitions, offsets.replication_factor) == (50, 3)
    assert dict(offsets.config or {})["cleanup.policy"] == "compact"
    transactions = automatic_topic(services().config, "__transaction_state")
    assert dict(transactions.config or {})["min.insync.replicas"] == "2"
    assert automatic_topic(services().config, "mine") == TopicRequest("mine")


def test_ids_never_look_like_an_option() -> None:
    ids = {new_topic_id() for _ in range(500)}
    assert len(ids) == 500
    assert not any(uuid_to_text(each).startswith("-") for each in ids)


async def test_topics_that_never_come_are_named_when_the_time_is_over() -> None:
    assert await wait_for_leaders(MetadataCache(), {"a": 1, "b": 2}, 50) == {"a", "b"}
    assert await wait_for_leaders(MetadataCache(), {"a": 1}, 0) == {"a"}

"""Admin, on our broker and on Kafka's; groups and access rules have files of their own."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kbroker.client import errors
from kbroker.client.admin import Admin
from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.producer import Producer
from kbroker.client.types import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AccessRule,
    ElectionType,
    NewTopic,
    OffsetAndMetadata,
    ResourceType,
    TopicDescription,
    TopicPartition,
)
from kbroker.protocol.errors import ErrorCode
from kbroker.security.acls import AclOperation, AclPattern, AclResource
from tests.fixtures.brokers import MakeCluster


async def test_topics_come_grow_and_go(bootstrap: str, topic_name: str) -> None:
    names = [f"{topic_name}-{index}" for index in range(3)]
    async with Admin(bootstrap) as admin:
        created = await admin.create_topics([NewTopic(name, 2, 1) for name in names])
        assert sorted(created) == names
        with pytest.raises(errors.TopicAlreadyExistsError, match=names[0]):
            await admin.create_topic(names[0])
        await admin.create_partitions({names[0]: 5})
        assert set(names) <= set(await admin.list_topics())
        await admin.delete_topics(names)
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            await admin.delete_topic(names[0])


@pytest.mark.parametrize(
    ("settings", "given", "told", "waited"),
    [
        ({}, None, 2_000, 2.5),
        ({}, 40_000, 40_000, 45.0),
        ({"default_api_timeout_ms": 8_000}, None, 8_000, 10.0),
        ({"default_api_timeout_ms": 8_000}, 4_000, 4_000, 5.0),
    ],
)
async def test_a_change_may_take_request_timeout_ms_unless_its_client_or_call_says_otherwise(
    bootstrap: str,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, int],
    given: int | None,
    told: int,
    waited: float,
) -> None:
    seen: list[tuple[int, float]] = []

    async def request(self: Connection, message: Any, version: int | None = None, *, timeout: float = 0.0) -> Any:
        seen.append((message.timeout_ms, timeout))
        raise errors.TimedOut("nobody answers")

    async with Admin(bootstrap, request_timeout_ms=2_000, **settings) as admin:
        await admin.cluster.connection(await admin.cluster.controller())
        monkeypatch.setattr(Connection, "request", request)
        for call in (
            admin.create_topic(topic_name, timeout_ms=given),
            admin.delete_topic(topic_name, timeout_ms=given),
        ):
            with pytest.raises(errors.TimedOut):
                await call
    assert seen == 2 * [(told, waited)]


async def test_configurations_are_changed_key_by_key(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.alter_configs("topic", topic, {"segment.ms": "12345", "retention.ms": None})
        async with asyncio.timeout(30):
            while True:  # brokers of a cluster without ZooKeeper hear of it a little later
                with contextlib.suppress(errors.UnknownTopicOrPartitionError):
                    entries = (await admin.describe_configs("topic", [topic]))[topic]
                    if entries["segment.ms"].value == "12345":
                        break
                await asyncio.sleep(0.05)
        assert entries["segment.ms"].source == "DYNAMIC_TOPIC_CONFIG"
        assert entries["retention.ms"].source != "DYNAMIC_TOPIC_CONFIG"
        with pytest.raises(errors.ConfigurationError, match="'topic' or 'broker'"):
            await admin.describe_configs("tpoic", [topic])


async def test_records_are_deleted_and_counted(bootstrap: str, topic: str) -> None:
    key = TopicPartition(topic, 0)
    async with Producer(bootstrap) as producer:
        for _ in range(10):
            await producer.send(topic, b"x", partition=0)
    async with Admin(bootstrap) as admin:
        assert (await admin.list_offsets([key]))[key].offset == 10
        assert await admin.delete_records({key: 4}) == {key: 4}
        described = await admin.describe_cluster()
        assert described.controller_id in {broker.id for broker in described.brokers}
        sizes = {r.partition: r.size for d in await admin.describe_log_dirs(topics=[topic]) for r in d.replicas}
        assert sizes[0] > 0


async def test_a_topic_is_described_as_it_was_made(bootstrap: str, topic_name: str) -> None:
    async with Admin(bootstrap) as admin:
        (broker,) = (await admin.describe_cluster()).brokers
        checked = await admin.create_topic(topic_name, 2, 1, validate_only=True)
        assert (checked.name, checked.partitions, checked.replication_factor) == (topic_name, 2, 1)
        assert topic_name not in await admin.list_topics()
        created = await admin.create_topic(topic_name, assignments={0: [broker.id], 1: [broker.id]})
        assert (created.partitions, created.replication_factor, len(created.topic_id)) == (2, 1, 16)
        described = await described_with_leaders(admin, topic_name, 2)
        assert (described.name, described.topic_id, described.is_internal) == (topic_name, created.topic_id, False)
        for number, partition in enumerate(described.partitions):
            assert (partition.partition, partition.leader) == (number, broker.id)
            assert partition.replicas == partition.isr == (broker.id,)
            assert partition.offline_replicas == ()
        await admin.create_partitions({topic_name: 3}, validate_only=True)
        await admin.create_partitions({topic_name: 4})
        assert len((await described_with_leaders(admin, topic_name, 4)).partitions) == 4
        with pytest.raises(errors.InvalidPartitionsError, match=topic_name):
            await admin.create_partitions({topic_name: 2})
        with pytest.raises(errors.InvalidReplicationFactorError):
            await admin.create_topic(f"{topic_name}-2", 1, 9)
        with pytest.raises(errors.UnknownTopicOrPartitionError, match="no-such"):
            await admin.describe_topics(["no-such"])
        await admin.delete_topic(topic_name)


async def test_a_topic_that_a_broker_has_not_heard_of_yet_is_asked_for_again(
    bootstrap: str, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.client.admin.NEW_TOPIC_S", 60.0)
    async with Admin(bootstrap) as admin, Admin(bootstrap) as other:
        refresh, answers = admin.cluster.refresh, []

        async def refresh_before_it_is_made(*arguments: Any, **more: Any) -> dict[str, Any]:
            answers.append(await refresh(*arguments, **more))
            if len(answers) == 1:
                await other.create_topic(topic_name, 1, 1)
            return answers[-1]

        monkeypatch.setattr(admin.cluster, "refresh", refresh_before_it_is_made)
        found = await admin.describe_topics([topic_name])
        assert answers[0][topic_name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found[topic_name].name == topic_name


async def described_with_leaders(admin: Admin, topic: str, partitions: int) -> TopicDescription:
    """A controller tells its brokers a moment later."""
    deadline = time.monotonic() + 30
    while True:
        found = (await admin.describe_topics([topic]))[topic]
        if len(found.partitions) == partitions and all(each.leader is not None for each in found.partitions):
            return found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.1)


async def test_lists_of_values_and_brokers_are_configured(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        (broker,) = (await admin.describe_cluster()).brokers
        await admin.alter_configs(ResourceType.TOPIC, topic, {}, append={"cleanup.policy": "compact"})
        policy = (await admin.describe_configs(ResourceType.TOPIC, [topic], ["cleanup.policy"]))[topic]
        assert list(policy) == ["cleanup.policy"]
        assert set((policy["cleanup.policy"].value or "").split(",")) == {"compact", "delete"}
        await admin.alter_configs("topic", topic, {}, subtract={"cleanup.policy": "delete"})
        policy = (await admin.describe_configs("topic", [topic], ["cleanup.policy"]))[topic]
        assert policy["cleanup.policy"].value == "compact"
        await admin.alter_configs("topic", topic, {"segment.ms": "777"}, validate_only=True)
        with pytest.raises(errors.BrokerError, match=topic):
            await admin.alter_configs("topic", topic, {"segment.ms": "soon"})
        key = "log.cleaner.delete.retention.ms"
        await admin.alter_configs("broker", broker.id, {key: "12345678"})
        try:
            deadline = time.monotonic() + 30
            while True:  # a broker hears of its own settings from ZooKeeper
                entry = (await admin.describe_configs("broker", [broker.id], [key]))[str(broker.id)][key]
                if entry.value == "12345678" or time.monotonic() > deadline:
                    break
                await asyncio.sleep(0.1)
            assert (entry.value, entry.source) == ("12345678", "DYNAMIC_BROKER_CONFIG")
            assert not entry.is_default
            assert not entry.is_read_only
        finally:
            await admin.alter_configs("broker", broker.id, {key: None})
        with pytest.raises(errors.BrokerNotAvailableError, match="no such broker"):
            await admin.describe_configs("broker", [broker.id + 77])


async def test_offsets_are_found_by_time(bootstrap: str, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Producer(bootstrap) as producer:
        for timestamp in (1_000, 3_000, 2_000):
            await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=timestamp)
    async with Admin(bootstrap) as admin:
        for wanted, offset in ((EARLIEST, 0), (LATEST, 3), (MAX_TIMESTAMP, 1), (1_500, 1), (9_000, -1)):
            found = await admin.list_offsets({first: wanted, second: wanted})
            assert found[first].offset == offset, wanted
            assert found[second].offset in (0, -1)
        assert (await admin.list_offsets({first: 1_500}))[first].timestamp == 3_000


async def test_log_directories_are_described(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_and_wait(topic, b"x" * 1000, partition=1)
    async with Admin(bootstrap) as admin:
        (broker,) = (await admin.describe_cluster()).brokers
        (directory,) = await admin.describe_log_dirs([broker.id], [topic])
        assert (directory.broker_id, directory.error) == (broker.id, None)
        assert directory.total_bytes >= directory.usable_bytes > 0
        sizes = {replica.partition: replica for replica in directory.replicas}
        assert sorted(sizes) == [0, 1, 2]
        assert {replica.topic for replica in sizes.values()} == {topic}
        assert sizes[1].size > 1000 > sizes[0].size
        assert not any(replica.is_future or replica.offset_lag for replica in sizes.values())
        await admin.alter_replica_log_dirs(broker.id, {TopicPartition(topic, 0): directory.path})  # is there already
        with pytest.raises(errors.LogDirNotFoundError, match=rf"{topic}-0 at broker {broker.id}"):
            await admin.alter_replica_log_dirs(broker.id, {TopicPartition(topic, 0): "/no/such/directory"})


async def test_elections_and_moves_are_answered_per_partition(bootstrap: str, topic: str) -> None:
    first, missing = TopicPartition(topic, 0), TopicPartition(topic, 9)
    async with Admin(bootstrap) as admin:
        (broker,) = (await admin.describe_cluster()).brokers
        await described_with_leaders(admin, topic, 3)
        outcome = await admin.elect_leaders([first, missing])
        assert outcome[first] is None
        assert isinstance(outcome[missing], errors.UnknownTopicOrPartitionError)
        assert first not in {key for key, error in (await admin.elect_leaders()).items() if error is not None}
        unclean = await admin.elect_leaders([first], ElectionType.UNCLEAN)
        assert unclean[first] is None
        await admin.alter_reassignments({first: [broker.id]})
        assert first not in await admin.list_reassignments()
        assert await admin.list_reassignments([first]) == {}
        with pytest.raises(errors.NoReassignmentInProgressError, match=str(first)):
            await admin.alter_reassignments({first: None})
        with pytest.raises(errors.InvalidReplicaAssignmentError, match=str(first)):
            await admin.alter_reassignments({first: [broker.id, broker.id + 77]})


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_replicas_move_and_leaders_return(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    key = TopicPartition("t", 0)
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("t", assignments={0: [1, 2]})
        await admin.alter_reassignments({key: [3, 2]})
        deadline = time.monotonic() + 60
        while moving := await admin.list_reassignments([key]):
            assert set(moving[key].adding) <= {3}
            assert set(moving[key].removing) <= {1}
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        # The controller lists no move any more; the broker that describes the topic hears of it a moment later.
        while (await described_with_leaders(admin, "t", 1)).partitions[0].replicas != (3, 2):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        await admin.alter_reassignments({key: [2, 3]})
        while await admin.list_reassignments([key]):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        assert await admin.elect_leaders([key]) == {key: None}
        while (await admin.describe_topics(["t"]))["t"].partitions[0].leader != 2:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_records_are_deleted_by_who_leads_by_now(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2)
    key = TopicPartition("t", 0)
    async with Admin(cluster.bootstrap) as admin, Admin(cluster.bootstrap) as other:
        await admin.create_topic("t", assignments={0: [1, 2]})
        assert await admin.delete_records({key: 0}) == {key: 0}
        deadline = time.monotonic() + 60
        await other.alter_reassignments({key: [2, 1]})
        while (await other.describe_topics(["t"]))["t"].partitions[0].leader != 2:
            assert time.monotonic() < deadline
            if not await other.list_reassignments([key]):
                await other.elect_leaders([key])
            await asyncio.sleep(0.05)
        assert await admin.delete_records({key: 0}) == {key: 0}


def wrong(value: Any) -> Any:
    """What mypy would tell at once."""
    return value


RULE = AccessRule(AclResource.TOPIC, "t", "User:a", AclOperation.READ)
WRONG: dict[str, Callable[[Any], Any]] = {
    "partitions": lambda admin: admin.create_topic("t", 1 << 40),
    "a partition that is a text": lambda admin: admin.create_topic("t", assignments={"0": [1]}),
    "a list of assignments": lambda admin: admin.create_topic("t", assignments=[[1]]),
    "a broker's id": lambda admin: admin.create_topic("t", assignments={0: [1 << 40]}),
    "a topic's name": lambda admin: admin.create_topic("x" * 40_000),
    "a configuration's key": lambda admin: admin.create_topic("t", configs={5: "1"}),
    "totals": lambda admin: admin.create_partitions(["t"]),
    "offsets to delete": lambda admin: admin.delete_records(["t"]),
    "a partition's number": lambda admin: admin.delete_records({("t", 1 << 40): 1}),
    "an offset": lambda admin: admin.delete_records({("t", 0): "1"}),
    "letters as names": lambda admin: admin.describe_configs("topic", "abc"),
    "letters as keys": lambda admin: admin.describe_configs("topic", ["t"], "abc"),
    "changes": lambda admin: admin.alter_configs("topic", "t", ["x"]),
    "what is to be appended": lambda admin: admin.alter_configs("topic", "t", {}, append=["x"]),
    "brokers": lambda admin: admin.describe_log_dirs(1),
    "directories": lambda admin: admin.alter_replica_log_dirs(1, ["x"]),
    "a directory": lambda admin: admin.alter_replica_log_dirs(1, {("t", 0): 5}),
    "a scrub": lambda admin: admin.scrub(b"x", 1),
    "a time": lambda admin: admin.list_offsets({("t", 0): 1 << 70}),
    "no partitions": lambda admin: admin.list_offsets(5),
    "an election": lambda admin: admin.elect_leaders([("t", 0)], "preferred"),
    "moves": lambda admin: admin.alter_reassignments(["x"]),
    "a move's brokers": lambda admin: admin.alter_reassignments({("t", 0): ["x"]}),
    "a time-out": lambda admin: admin.list_reassignments(timeout_ms="1"),
    "a group's name": lambda admin: admin.group_history(5),
    "a group": lambda admin: admin.list_group_offsets(5),
    "a group's offsets": lambda admin: admin.alter_group_offsets("g", ["x"]),
    "a group's place": lambda admin: admin.reset_group_offsets("g", ["t"], 1 << 70),
    "members": lambda admin: admin.remove_group_members("g", instance_ids="abc"),
    "a producer's id": lambda admin: admin.list_transactions(producer_ids=["x"]),
    "transactional ids": lambda admin: admin.fence_producers("abc"),
    "no rule": lambda admin: admin.create_acls(["x"]),
    "one rule": lambda admin: admin.create_acls(RULE),
    "a rule's resource": lambda admin: admin.create_acls([replace(RULE, resource=wrong("topic"))]),
    "a rule's name": lambda admin: admin.create_acls([replace(RULE, name=wrong(None))]),
    "a rule of any operation": lambda admin: admin.create_acls([replace(RULE, operation=AclOperation.ANY)]),
    "a rule of a filter's pattern": lambda admin: admin.create_acls([replace(RULE, pattern=AclPattern.MATCH)]),
    "a rule for nobody": lambda admin: admin.create_acls([replace(RULE, principal="a")]),
    "a rule as filter": lambda admin: admin.delete_acls([RULE]),
    "no filter": lambda admin: admin.describe_acls("t"),
    "a quota's entity": lambda admin: admin.alter_client_quotas(["user"], {"producer_byte_rate": 1}),
    "a quota as text": lambda admin: admin.alter_client_quotas({"user": "a"}, {"producer_byte_rate": "1"}),
    "a quota beyond all": lambda admin: admin.alter_client_quotas({"user": "a"}, {"producer_byte_rate": 1 << 2000}),
    "a mechanism": lambda admin: admin.set_user("u", "p", mechanisms=["x"]),
    "a password": lambda admin: admin.set_user("u", 5),
    "iterations": lambda admin: admin.set_user("u", "p", iterations=1 << 40),
    "users": lambda admin: admin.describe_users("abc"),
    "a token": lambda admin: admin.renew_delegation_token("x"),
    "a feature's level": lambda admin: admin.update_feature("transaction.version", 1 << 40),
}


@pytest.mark.parametrize("what", WRONG)
async def test_wrong_values_are_refused_before_anything_is_sent(what: str) -> None:
    async with Admin("127.0.0.1:1", request_timeout_ms=200) as admin:
        with pytest.raises((errors.ConfigurationError, TypeError), match=r" is | are | has | named by "):
            await WRONG[what](admin)


async def test_numbers_of_numpy_are_numbers(bootstrap: str, topic_name: str) -> None:
    one = np.int64(1)
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic_name, wrong(one), wrong(one), timeout_ms=wrong(np.int64(30_000)))
        await admin.alter_group_offsets(topic_name, wrong({(topic_name, np.int64(0)): np.int64(0)}))
        assert await admin.list_group_offsets(topic_name) == {TopicPartition(topic_name, 0): OffsetAndMetadata(0)}
        await admin.alter_client_quotas({"user": topic_name}, wrong({"producer_byte_rate": np.int64(1000)}))
        await admin.alter_client_quotas({"user": topic_name}, {"producer_byte_rate": None})


async def test_new_partitions_lie_where_they_are_wanted(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        with pytest.raises(errors.InvalidReplicaAssignmentError):
            await admin.create_partitions({topic: 5}, assignments={topic: [[1]]})
        await admin.create_partitions({topic: 5}, assignments={topic: [[1], [1]]})
        described = await admin.describe_topics([topic])
        assert [each.replicas for each in described[topic].partitions] == [(1,)] * 5


@pytest.mark.parametrize("is_known", [True, False])
async def test_brokers_that_have_been_known_are_waited_for(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """They start again; an address that has never answered may be a wrong one, and is named at once."""
    reach, refusals = Cluster.any_connection, 0

    async def any_connection(cluster: Cluster, besides: Connection | None = None) -> Connection:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise errors.NotConnected("no bootstrap broker answers")
        return await reach(cluster, besides)

    monkeypatch.setattr(Cluster, "any_connection", any_connection)
    async with Admin(bootstrap) as admin:
        calls: list[Callable[[], Awaitable[Any]]] = [
            admin.list_topics,
            lambda: admin.describe_topics([topic]),
            admin.list_groups,
            admin.list_transactions,
            admin.list_reassignments,
            admin.describe_features,
        ]
        for call in calls:
            admin.cluster.metadata.controller_id = -1  # whom to ask is not known
            if is_known:
                refusals = 0
                await admin.list_topics()
                refusals = 2
                assert await call() is not None
            else:
                refusals = 1
                with pytest.raises(errors.NotConnected, match="no bootstrap broker answers"):
                    await call()
    async with Admin(bootstrap, wait_for_brokers=False) as admin:
        refusals = 0
        await admin.list_topics()
        refusals = 1
        with pytest.raises(errors.NotConnected, match="no bootstrap broker answers"):
            await admin.list_topics()


async def test_a_question_whose_connection_ends_is_asked_again_where_that_changes_nothing(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, cut = Connection.request, ""

    async def request(connection: Connection, message: Any, *how: Any, **more: Any) -> Any:
        nonlocal cut
        if type(message).__name__ == cut:
            cut = ""
            raise errors.NotConnected("the broker stops")
        return await ask(connection, message, *how, **more)

    monkeypatch.setattr(Connection, "request", request)
    async with Admin(bootstrap) as admin:
        cut = "MetadataRequest"
        assert topic in await admin.list_topics()
        cut = "ListPartitionReassignmentsRequest"
        assert await admin.list_reassignments([(topic, 0)]) == {}
        cut = "CreateTopicsRequest"  # which may have done it
        with pytest.raises(errors.NotConnected, match="the broker stops"):
            await admin.create_topic(topic)

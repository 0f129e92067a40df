import asyncio

import pytest

from kbroker.client import errors
from kbroker.client.admin import Admin
from kbroker.client.types import OffsetAndMetadata, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.client.group.members import fill, member, poll_until


def keys(topic: str, *partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]


async def test_a_group_is_listed_described_and_deleted(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        async with member(bootstrap, topic, group_instance_id="one", client_id="me") as consumer:
            await consumer.subscribe([topic])
            await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
            listed = (await admin.list_groups())[topic]
            assert (listed.type, listed.state, listed.protocol_type) == ("classic", "Stable", "consumer")
            assert topic in await admin.list_groups(states=["Stable"], types=["classic"])
            assert topic not in await admin.list_groups(states=["Empty"])
            group = (await admin.describe_groups([topic]))[topic]
            assert (group.state, group.assignor, group.type) == ("Stable", "range", "classic")
            (one,) = group.members
            assert (one.client_id, one.group_instance_id, one.topics) == ("me", "one", (topic,))
            assert one.assignment == tuple(keys(topic, 0, 1, 2))
            assert one.member_id == consumer.group_metadata().member_id
            with pytest.raises(errors.NonEmptyGroupError):
                await admin.delete_groups([topic])
            with pytest.raises(errors.NonEmptyGroupError, match="stop them"):
                await admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 1})
            await consumer.unsubscribe()
        nobody = (await admin.describe_groups([f"{topic}-nobody"]))[f"{topic}-nobody"]
        assert (nobody.state, nobody.members) == ("Dead", ())
        with pytest.raises(errors.GroupIdNotFoundError):
            await admin.delete_groups([f"{topic}-nobody"])


async def test_members_are_removed_one_by_one_or_all(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        gone = member(bootstrap, topic, group_instance_id="gone")
        await gone.subscribe([topic])
        await poll_until(lambda: len(gone.assignment()) == 3, gone)
        await gone.close()  # a static member says nothing: its partitions wait for it
        with pytest.raises(errors.UnknownMemberIdError, match="member nobody of group"):
            await admin.remove_group_members(topic, instance_ids=["nobody"])
        await admin.remove_group_members(topic, instance_ids=["gone"], reason="it does not come back")
        assert (await admin.describe_groups([topic]))[topic].members == ()
        async with member(bootstrap, topic) as one:
            await one.subscribe([topic])
            await poll_until(lambda: len(one.assignment()) == 3, one)
            was = one.group_metadata().member_id
            await admin.remove_group_members(topic)
            await poll_until(lambda: one.group_metadata().member_id not in ("", was), one)
            await admin.remove_group_members(topic, member_ids=[one.group_metadata().member_id])
        await admin.remove_group_members(topic)


async def test_offsets_are_altered_reset_and_deleted(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic, 30)
    first, second = keys(topic, 0, 1)
    async with Admin(bootstrap) as admin:
        with pytest.raises(TypeError, match="an offset from 0 on or an OffsetAndMetadata is committed, not -4"):
            await admin.alter_group_offsets(topic, {first: -4})
        await admin.alter_group_offsets(topic, {first: 4, second: OffsetAndMetadata(5, "note")})
        found = await admin.list_group_offsets(topic)
        assert {key: (item.offset, item.metadata) for key, item in found.items()} == {
            first: (4, ""),
            second: (5, "note"),
        }
        assert list(await admin.list_group_offsets(topic, [first])) == [first]
        assert await admin.reset_group_offsets(topic, [first], "earliest", dry_run=True) == {first: 0}
        assert (await admin.list_group_offsets(topic))[first].offset == 4
        assert await admin.reset_group_offsets(topic, [topic], "latest") == dict.fromkeys(keys(topic, 0, 1, 2), 10)
        assert await admin.reset_group_offsets(topic, [first], 1_000) == {first: 0}
        assert await admin.reset_group_offsets(topic, [first], 1 << 50) == {first: 10}
        await admin.delete_group_offsets(topic, [first])
        assert sorted(await admin.list_group_offsets(topic)) == keys(topic, 1, 2)
        await admin.delete_groups([topic])
        assert await admin.list_group_offsets(topic) == {}
        with pytest.raises(errors.ConfigurationError, match="earliest"):
            await admin.reset_group_offsets(topic, [first], "first")


async def test_a_reset_by_topic_reaches_partitions_that_another_client_has_added(
    broker: BrokerProcess, topic_name: str
) -> None:
    async with Admin(broker.bootstrap) as admin, Admin(broker.bootstrap) as other:
        await admin.create_topic(topic_name, 1, 1)
        assert await admin.reset_group_offsets(topic_name, [topic_name], "earliest") == {(topic_name, 0): 0}
        await other.create_partitions({topic_name: 3})
        async with asyncio.timeout(60):
            while len((await other.describe_topics([topic_name]))[topic_name].partitions) < 3:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        found = await admin.reset_group_offsets(topic_name, iter([topic_name]), "earliest")
        assert found == dict.fromkeys(keys(topic_name, 0, 1, 2), 0)


async def test_a_group_of_the_newer_protocol_is_described_too(broker: BrokerProcess, topic_name: str) -> None:
    bootstrap = broker.bootstrap
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic_name, 3, 1)
        async with member(bootstrap, topic_name, group_protocol="consumer") as consumer:
            await consumer.subscribe([topic_name])
            await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
            assert (await admin.list_groups(types=["consumer"]))[topic_name].type == "consumer"
            group = (await admin.describe_groups([topic_name]))[topic_name]
            assert (group.type, group.epoch) == ("consumer", consumer.group_metadata().generation_id)
            (one,) = group.members
            assert one.assignment == one.target == tuple(keys(topic_name, 0, 1, 2))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_the_history_of_a_group_tells_who_came_and_went(
    broker: BrokerProcess, topic_name: str, protocol: str
) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic_name, 3, 1)
        assert await admin.group_history(topic_name) == ()
        async with member(broker.bootstrap, topic_name, group_protocol=protocol, client_id="me") as consumer:
            await consumer.subscribe([topic_name])
            await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        first, *_, last = await admin.group_history(topic_name)
        assert "joined" in first.reasons[0]
        assert "me" in first.reasons[0]
        assert first.members == 1
        assert " left" in last.reasons[-1]
        assert last.outcome == "nobody is in the group any more"
        assert last.duration_ms is not None


@pytest.mark.slow
async def test_kafkas_brokers_are_said_to_tell_nothing(kafka_bootstrap: str) -> None:
    async with Admin(kafka_bootstrap) as admin:
        with pytest.raises(errors.UnsupportedVersionError, match="kbroker's do, Kafka's do not"):
            await admin.group_history("any")

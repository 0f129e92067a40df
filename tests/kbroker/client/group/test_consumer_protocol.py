"""Members of the newer protocol (KIP-848) with our coordinator and with Kafka's."""

import asyncio

import pytest

from kbroker.client.admin import Admin
from tests.kbroker.client.group.members import Diary, fill, member, poll_until, shares


@pytest.fixture(params=["kbroker", pytest.param("kafka", marks=pytest.mark.slow)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    if request.param == "kafka":
        return str(request.getfixturevalue("kraft_bootstrap"))
    return str(request.getfixturevalue("broker").bootstrap)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
async def test_members_share_commit_and_inherit(bootstrap: str, topic: str, assignor: str) -> None:
    await fill(bootstrap, topic, 30)
    diary = Diary()
    arguments = {"group_protocol": "consumer", "group_remote_assignor": assignor}
    async with member(bootstrap, topic, **arguments) as first:
        await first.subscribe([topic], listener=diary)
        seen = await poll_until(lambda: len(first.assignment()) == 3, first)
        async with member(bootstrap, topic, **arguments) as second:
            await second.subscribe([topic])
            seen += await poll_until(lambda: shares(first, second) == [1, 2], first, second)
            await first.commit()
            assert first.group_metadata().generation_id > 0
        seen += await poll_until(lambda: len(first.assignment()) == 3, first)
        seen += await poll_until(lambda: sum(first.positions.values()) == 30, first)
    assert len(seen) == 30
    assert [entry[0] for entry in diary.entries] == ["assigned", "revoked", "assigned", "assigned", "revoked"]


@pytest.mark.slow
async def test_who_stays_away_from_poll_comes_back(bootstrap: str, topic: str) -> None:
    diary = Diary()
    arguments = {"group_protocol": "consumer", "max_poll_interval_ms": 1_000, "group_instance_id": "one"}
    async with member(bootstrap, topic, **arguments) as consumer:
        await consumer.subscribe([topic], listener=diary)
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        await asyncio.sleep(1.5)
        await poll_until(lambda: diary.count("lost") > 0 and len(consumer.assignment()) == 3, consumer)
        # A machine that stands still may keep it from poll once more.
        told = [entry[0] for entry in diary.entries]
        assert told == ["assigned", "lost"] * diary.count("lost") + ["assigned"]


async def test_topics_that_come_later_are_read(bootstrap: str, topic: str) -> None:
    later = f"{topic}-later"
    async with member(bootstrap, topic, group_protocol="consumer", metadata_max_age_ms=200) as consumer:
        await consumer.subscribe([topic, later])
        await poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        async with Admin(bootstrap) as admin:
            await admin.create_topic(later, 1, 1)
        await poll_until(lambda: len(consumer.assignment()) == 4, consumer)
        await consumer.subscribe([later])
        await poll_until(lambda: consumer.assignment() == [(later, 0)], consumer)

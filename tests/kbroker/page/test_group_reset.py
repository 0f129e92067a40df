from dataclasses import replace

import pytest

from kbroker.client.admin import Admin
from kbroker.client.errors import NotConnected
from kbroker.client.types import OffsetAndMetadata, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page.group_reset import Places, Reset, places_of, read_places, read_reset
from kbroker.page.record_query import WrongQuery
from tests.kbroker.page.test_scan import fill

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"to": "earliest", "topic": "t", "at": "7"}, Reset("earliest", "t")),
        ({"to": "time", "at": "30m ago"}, Reset("time", at=NOW_MS - 1_800_000)),
        ({"to": "offset", "at": "12"}, Reset("offset", at=12)),
        ({"to": "shift", "at": "-12"}, Reset("shift", at=-12)),
        ({"to": "shift", "at": "+12"}, Reset("shift", at=12)),
        ({"to": "group", "from": "g"}, Reset("group", other="g")),
    ],
)
def test_a_reset_is_read_from_an_address(asked: dict[str, str], expected: Reset) -> None:
    assert read_reset(asked, NOW_MS) == expected


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"to": "x"},
        {"to": "time", "at": "x"},
        {"to": "offset", "at": "-1"},
        {"to": "shift", "at": ""},
        {"to": "shift", "at": "9" * 30},
        {"to": "group"},
    ],
)
def test_what_says_no_place_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(WrongQuery):
        read_reset(asked, NOW_MS)


async def test_a_group_is_moved_on_back_to_an_offset_or_to_where_another_is(
    broker: BrokerProcess, topic_name: str
) -> None:
    await fill(broker.bootstrap, topic_name, (100, 50))
    first, second = (TopicPartition(topic_name, number) for number in (0, 1))
    async with Admin(broker.bootstrap) as admin:
        await admin.alter_group_offsets(topic_name, {first: 40, second: 45})
        await admin.alter_group_offsets(f"{topic_name}-2", {first: 90})
        committed = await admin.list_group_offsets(topic_name)
        topics = await admin.describe_topics([topic_name])

        async def places(reset: Reset) -> list[int]:
            return list((await places_of(admin, reset, committed, topics)).offsets.values())

        assert await places(Reset("shift", at=10)) == [50, 50]  # never beyond the end
        assert await places(Reset("shift", at=-42)) == [0, 3]
        assert await places(Reset("offset", at=60)) == [60, 50]
        assert await places(Reset("earliest", topic_name)) == [0, 0]
        assert await places(Reset("time", at=NOW_MS * 2)) == [100, 50]
        assert await places(Reset("time", at=0)) == [0, 0]
        copied = await places_of(admin, Reset("group", other=f"{topic_name}-2"), committed, topics)
        assert copied == Places({first: 90}, [])
        for nothing in (Reset("latest", "no-such-topic"), Reset("group", other="no-such-group")):
            with pytest.raises(WrongQuery, match="no commits"):
                await places_of(admin, nothing, committed, topics)
        with pytest.raises(WrongQuery, match="no commits"):  # all of its topics are gone
            await places_of(admin, Reset("latest"), committed, {})


async def test_partitions_that_nobody_leads_are_left_out_and_named(broker: BrokerProcess, topic_name: str) -> None:
    await fill(broker.bootstrap, topic_name, (3, 3))
    led, silent = (TopicPartition(topic_name, number) for number in (0, 1))
    async with Admin(broker.bootstrap) as admin:
        topics = await admin.describe_topics([topic_name])
        first, second = topics[topic_name].partitions
        topics[topic_name] = replace(topics[topic_name], partitions=(first, replace(second, leader=None)))
        commits = {key: OffsetAndMetadata(1) for key in (led, silent, TopicPartition(topic_name, 9))}
        assert await places_of(admin, Reset("latest"), commits, topics) == Places({led: 3}, [silent])
        with pytest.raises(WrongQuery, match="no partition that has a leader"):
            await places_of(admin, Reset("latest"), {silent: OffsetAndMetadata(1)}, topics)


def test_places_are_read_back_as_they_were_shown() -> None:
    assert read_places('[["t", 1, 5]]') == {TopicPartition("t", 1): 5}


class AnotherLeads(Admin):
    """Where the leaders that it knows from before are silent."""

    is_told = False

    async def describe_topics(self, *arguments: object, **more: object) -> object:  # type: ignore[override]
        self.is_told = True
        return await super().describe_topics(*arguments, **more)  # type: ignore[arg-type]

    async def list_offsets(self, *arguments: object, **more: object) -> object:  # type: ignore[override]
        if not self.is_told:
            raise NotConnected("silent")
        return await super().list_offsets(*arguments, **more)  # type: ignore[arg-type]


async def test_where_a_group_would_go_is_asked_of_those_who_lead_now(broker: BrokerProcess, topic_name: str) -> None:
    await fill(broker.bootstrap, topic_name, (3,))
    key = TopicPartition(topic_name, 0)
    async with Admin(broker.bootstrap) as other, AnotherLeads(broker.bootstrap) as admin:
        topics = await other.describe_topics([topic_name])
        assert await places_of(admin, Reset("latest"), {key: OffsetAndMetadata(1)}, topics) == Places({key: 3}, [])

import pytest

from kbroker.client.admin import Admin
from kbroker.client.producer import Producer
from kbroker.client.types import LogDirDescription, NewTopic, PartitionDescription, ReplicaSize, TopicDescription
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page.facts import Disks
from kbroker.page.topic_views import TOPICS_SHOWN, _ordered
from tests.kbroker.page.visiting import until, visiting


async def test_topics_are_filtered_sorted_and_paged_by_the_server(broker: BrokerProcess, topic_name: str) -> None:
    names = [f"{topic_name}.{number:03d}" for number in range(TOPICS_SHOWN + 3)]
    async with Admin(broker.bootstrap) as admin, visiting(broker.bootstrap) as visitor:
        await admin.create_topics([NewTopic(name, 2 if name == names[-1] else 1) for name in names])
        first = await visitor.see(f"/topics?q={topic_name.upper()}.")
        assert (names[0] in first, names[-1] in first, "1 of 2" in first) == (True, False, True)
        second = await visitor.see(f"/topics?q={topic_name}.&page=2")
        assert (names[0] in second, names[-1] in second) == (False, True)
        assert names[-1] in await visitor.see(f"/topics?q={topic_name}.&sort=partitions")
        assert "No topic matches" in await visitor.see("/topics?q=no-such-topic")
        await admin.delete_topics(names)


@pytest.mark.slow
async def test_a_topic_shows_its_partitions_with_their_offsets(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin, visiting(broker.bootstrap) as visitor:
        await admin.create_topic(topic_name, 3)
        async with Producer(broker.bootstrap) as producer:
            for _ in range(1234):
                await producer.send(topic_name, b"x", partition=1)
            await producer.flush()
        text = await visitor.see(f"/topics/{topic_name}")
        assert text.count("1\u202f234") == 3  # all records, the partition's next offset and its records
        assert 'class="chip leader"' in text


async def test_settings_come_with_source_and_words_and_change_in_place(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin, visiting(broker.bootstrap, allow_writes=True) as visitor:
        await admin.create_topic(topic_name, 1, configs={"retention.ms": "111222333"})
        path = f"/topics/{topic_name}/settings"
        text = await visitor.see(path)
        assert 'value="111222333"' in text
        assert "dynamic topic config" in text
        assert "<summary>what it does</summary>" in text

        async def is_set() -> bool:
            return (await admin.describe_configs("topic", [topic_name]))[topic_name]["retention.ms"].value == "5"

        async def is_reset() -> bool:
            return not await is_set()

        done = await visitor.submit(path, {"key": "retention.ms", "value": "5", "what": "set"}, path)
        assert done.status == 303
        await until(is_set)
        await visitor.submit(path, {"key": "retention.ms", "value": "5", "what": "reset"}, path)
        await until(is_reset)
        refused = await visitor.submit(path, {"key": "<b>no", "value": "5", "what": "set"}, path)
        assert refused.status == 400
        assert "<b>no" not in refused.text


def described(name: str, *isrs: tuple[int, ...]) -> TopicDescription:
    """Return a topic with copies on brokers 1 and 2, and these in sync; where none is, nobody leads."""
    partitions = (
        PartitionDescription(number, isr[0] if isr else None, 0, (1, 2), isr, ()) for number, isr in enumerate(isrs)
    )
    return TopicDescription(name, b"", name.startswith("__"), tuple(partitions))


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("name", ["a", "b", "c", "d"]),
        ("nonsense", ["a", "b", "c", "d"]),
        ("partitions", ["b", "c", "a", "d"]),
        ("size", ["c", "b", "a", "d"]),
        ("trouble", ["d", "c", "a", "b"]),
    ],
)
def test_topics_are_in_the_order_that_is_asked_for_and_among_equals_by_name(order: str, names: list[str]) -> None:
    well, behind, offline = (1, 2), (1,), ()
    topics = (described("d", offline), described("c", behind, well), described("b", well, well), described("a", well))
    copies = (ReplicaSize("c", 0, 70, 0, False), ReplicaSize("b", 0, 30, 0, False), ReplicaSize("b", 1, 20, 0, False))
    disks = Disks((LogDirDescription(1, "/d", 1000, 250, None, copies),), {})
    found = _ordered({topic.name: topic for topic in (*topics, described("__x", well))}, disks, {}, "", False, order)
    assert [topic.name for topic in found] == names
    assert (disks.bytes_of_topic("b"), disks.bytes_of_topic("a")) == (50, None)

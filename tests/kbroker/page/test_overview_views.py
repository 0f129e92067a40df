from kbroker.client.admin import Admin
from kbroker.client.types import PartitionDescription, TopicDescription
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page.facts import Health
from kbroker.page.overview_views import _glance
from tests.kbroker.page.visiting import until, visiting


async def test_the_cluster_is_seen_at_a_glance(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin, visiting(broker.bootstrap) as visitor:
        await admin.create_topic(topic_name, 2)
        cluster = await admin.describe_cluster()
        text = await visitor.see("/")
        assert cluster.cluster_id in text
        assert f"127.0.0.1:{broker.port}" in text
        assert await admin.describe_software(broker.broker_id) in text
        assert "controller</span>" in text
        assert "<meter" in text
        found = await visitor.see(f"/map?q={topic_name}")
        assert f"{topic_name}-1 on broker 1: leader" in found
        assert "1 topics" in found
        assert f"{topic_name}-1 on broker" not in await visitor.see("/map?q=no-such-topic")


async def test_a_brokers_settings_are_shown_and_changed_where_that_is_allowed(own_broker: BrokerProcess) -> None:
    async with Admin(own_broker.bootstrap) as admin:
        async with visiting(own_broker.bootstrap) as visitor:
            text = await visitor.see("/brokers/1")
            assert "log.retention.ms" in text
            assert "/brokers/1/settings" not in text
        async with visiting(own_broker.bootstrap, allow_writes=True) as visitor:
            form = {"key": "log.cleaner.threads", "value": "2", "what": "set"}
            done = await visitor.submit("/brokers/1/settings", form, "/brokers/1")
            assert (done.status, done.header("location")) == (303, "/brokers/1?done=changed")

            async def is_changed() -> bool:
                return (await admin.describe_configs("broker", [1]))["1"]["log.cleaner.threads"].value == "2"

            await until(is_changed)
            wrong = await visitor.submit("/brokers/1/settings", {**form, "value": "many"}, "/brokers/1")
            assert (wrong.status, "many" in wrong.text) == (400, True)


def topic(name: str, *partitions: tuple[int | None, tuple[int, ...], tuple[int, ...]]) -> TopicDescription:
    described = [PartitionDescription(number, each[0], 0, *each[1:], ()) for number, each in enumerate(partitions)]
    return TopicDescription(name, b"", name.startswith("__"), tuple(described))


def test_what_is_worst_is_seen_first_and_of_what_is_well_the_largest() -> None:
    well = (1, (1, 2), (2, 1))
    topics = [topic("__own", well, well, well), topic("small", well), topic("a", well, well), topic("b", well, well)]
    brokers, loads, health, chosen = _glance(topics, [0, 1], {})
    assert (brokers, health) == ([0, 1, 2], Health(8, 0, 0))
    assert [(load.broker, load.leaders, load.replicas, load.out_of_sync) for load in loads] == [
        (0, 0, 0, 0),
        (1, 8, 8, 0),
        (2, 0, 8, 0),
    ]
    assert [each.name for each in chosen] == ["a", "b", "small", "__own"]
    topics += [topic("behind", (0, (0, 2), (0,)), (2, (1, 2), (2,))), topic("off", (None, (1, 2), (1,)))]
    _, _, health, chosen = _glance(topics, [1], {})
    assert health == Health(11, 2, 1)
    assert [each.name for each in chosen] == ["off", "behind", "a", "b", "small", "__own"]

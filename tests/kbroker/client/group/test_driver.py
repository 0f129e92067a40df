"""The driver against brokers that go away; what goes well is tested in test_group_consumer.py."""

import asyncio
from typing import Any

import pytest

from kbroker.client import errors
from kbroker.client.admin import Admin
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import Cluster
from kbroker.client.consumer import Consumer
from kbroker.client.errors import NotConnected
from kbroker.client.group.coordinator import Coordinator
from kbroker.client.group.driver import Driver
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.groups import HeartbeatResponse, LeaveGroupRequest, LeaveGroupResponse
from tests.kbroker.client.group.members import Diary, fill, member, poll_until
from tests.kbroker.client.group.test_classic_member import stable
from tests.simulation.loop import Simulation


async def test_a_restarted_coordinator_knows_its_member_again(own_broker: BrokerProcess) -> None:
    diary = Diary()
    async with Admin(own_broker.bootstrap) as admin:
        await admin.create_topic("t", 2)
    async with member(own_broker.bootstrap, "g", session_timeout_ms=30_000, request_timeout_ms=5_000) as consumer:
        await consumer.subscribe(["t"], listener=diary)
        await poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        generation = consumer.group_metadata().generation_id
        await asyncio.to_thread(own_broker.stop)
        await consumer.poll(1.0)
        await asyncio.to_thread(lambda: own_broker.start().wait_until_ready(30))
        async with asyncio.timeout(30):
            await consumer.commit({("t", 0): 5})
        assert consumer.group_metadata().generation_id == generation
        assert diary.count("lost") == 0


@pytest.mark.slow
async def test_a_cluster_without_the_newer_protocol_says_so(kafka_bootstrap: str, topic_name: str) -> None:
    async with member(kafka_bootstrap, topic_name, group_protocol="consumer") as consumer:
        await consumer.subscribe([topic_name])
        with pytest.raises(errors.UnsupportedVersionError, match="group_protocol='classic'"):
            await poll_until(lambda: False, consumer)


async def test_a_poll_that_is_cancelled_or_too_short_leaves_the_rebalance_whole(bootstrap: str, topic: str) -> None:
    release = asyncio.Event()

    class Slow(Diary):
        async def on_assigned(self, partitions: object) -> None:  # type: ignore[override]
            await release.wait()
            self.entries.append(("assigned", ()))

    diary = Slow()
    async with member(bootstrap, topic) as consumer:
        await consumer.subscribe([topic], listener=diary)
        async with asyncio.timeout(20):
            while not consumer.assignment():
                assert await consumer.poll(0.1) == []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await consumer.poll(20)
        assert diary.entries == []
        release.set()
        await consumer.poll(0.5)
        assert diary.entries == [("assigned", ())]


async def test_what_is_being_given_up_is_given_to_nobody(bootstrap: str, topic: str) -> None:
    is_told, release = asyncio.Event(), asyncio.Event()

    class Slow(Diary):
        async def on_revoked(self, partitions: object) -> None:  # type: ignore[override]
            is_told.set()
            await release.wait()

    await fill(bootstrap, topic, 30, partitions=1)
    async with member(bootstrap, topic) as consumer, asyncio.timeout(20):
        await consumer.subscribe([topic], listener=Slow())
        seen = [(await anext(aiter(consumer))).offset]
        consumer.enforce_rebalance()
        while not is_told.is_set():
            assert await consumer.poll(0.05) == [], "its position is committed"
        assert await consumer.poll(0.05) == []
        release.set()
        while len(seen) < 30:
            seen += [record.offset for record in await consumer.poll(5)]
    assert seen == list(range(30))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_that_is_closed_while_its_coordinator_is_away_leaves_when_that_is_back(
    broker: BrokerProcess, topic_name: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*arguments: Any, **named: Any) -> Any:
        raise NotConnected("away")

    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic_name, 2)
        arguments = {"group_protocol": protocol, "enable_auto_commit": False}
        consumer = member(broker.bootstrap, topic_name, **arguments)
        await consumer.subscribe([topic_name])
        await poll_until(lambda: len(consumer.assignment()) == 2, consumer)
        driver = consumer._group.driver  # type: ignore[union-attr]
        assert driver is not None
        with monkeypatch.context() as patch:
            patch.setattr(consumer.cluster, "connection", away)
            patch.setattr(consumer.cluster, "any_connection", away)
            await poll_until(lambda: not driver.member._has_coordinator, consumer)
            closing = asyncio.create_task(consumer.close())
            await asyncio.sleep(0.5)
            assert not closing.done()
        await closing
        assert not (await admin.describe_groups([topic_name]))[topic_name].members


class DeadCoordinator(Coordinator):
    """Every broker names one that is dead."""

    asked = 0

    async def find(self, timeout_ms: int | None = None) -> int:
        return 1

    async def ask(self, *request: Any, **how: Any) -> Any:
        self.asked += 1
        raise ConnectionRefusedError


class FormerCoordinator(DeadCoordinator):
    """Every broker names one that is none any more."""

    async def ask(self, *request: Any, **how: Any) -> Any:
        self.asked += 1
        return HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)


class BrokenCoordinator(DeadCoordinator):
    """Does what nobody expects."""

    async def ask(self, *request: Any, **how: Any) -> Any:
        raise ZeroDivisionError("who divides here?")


class Resetting(Coordinator):
    """Its first connection ends before the answer."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, "g")
        self.asked: list[Any] = []

    async def ask(self, *request: Any, **how: Any) -> Any:
        self.asked.append(request[0])
        if len(self.asked) == 1:
            raise ConnectionResetError
        return LeaveGroupResponse(error_code=ErrorCode.NONE, members=[])


class Nobody:
    def wake(self) -> None:
        pass

    async def do(self, work: Any) -> None:
        pass

    async def make_changes(self) -> None:
        pass


async def test_a_farewell_whose_connection_ends_is_said_again() -> None:
    cluster = Cluster(ConsumerConfig(bootstrap="127.0.0.1:1"))
    coordinator = Resetting(cluster)
    driver = Driver(stable(TopicPartition("a", 0)), cluster, coordinator, Nobody())
    await driver.leave("enough", 20)
    await driver.close()
    await cluster.close()
    assert [type(request) for request in coordinator.asked] == [LeaveGroupRequest] * 2


async def test_a_farewell_that_nobody_waits_for_any_more_is_not_said_later() -> None:
    cluster = Cluster(ConsumerConfig(bootstrap="127.0.0.1:1"))
    coordinator = DeadCoordinator(cluster, "g")
    driver = Driver(stable(TopicPartition("a", 0)), cluster, coordinator, Nobody())
    before = asyncio.all_tasks()
    leaving = asyncio.create_task(driver.leave("enough", 20))
    await asyncio.sleep(0.01)
    assert coordinator.asked
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert asyncio.all_tasks() == before
    await driver.close()
    await cluster.close()


async def test_what_nobody_expects_ends_the_membership_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(ConsumerConfig(bootstrap="127.0.0.1:1"))
    driver = Driver(stable(TopicPartition("a", 0)), cluster, BrokenCoordinator(cluster, "g"), Nobody())
    driver.handle(driver.member.tick(driver.now))
    async with asyncio.timeout(20):
        while driver.error is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert isinstance(driver.error, errors.UnknownServerError)
    assert "who divides here?" in str(driver.error)
    assert "Traceback" in caplog.text
    await driver.close()
    await cluster.close()


@pytest.mark.parametrize("kind", [DeadCoordinator, FormerCoordinator])
def test_a_coordinator_that_is_named_though_it_is_none_is_asked_ever_less_often(kind: type[DeadCoordinator]) -> None:
    simulation = Simulation(seed=1)
    simulation.now = 1.0
    machine = simulation.machine("client")

    async def live() -> int:
        cluster = Cluster(ConsumerConfig(bootstrap="127.0.0.1:1"))
        coordinator = kind(cluster, "g")
        driver = Driver(stable(TopicPartition("a", 0)), cluster, coordinator, Nobody())
        driver.handle(driver.member.tick(driver.now))
        await asyncio.sleep(9)
        await driver.close()
        await cluster.close()
        return coordinator.asked

    living = machine.create_task(live())
    assert simulation.run(20, living.done)
    assert 5 < living.result() < 20


async def test_who_unsubscribes_while_what_the_application_does_fails_has_left_all_the_same() -> None:
    async with Consumer("127.0.0.1:1", group_id="g", enable_auto_commit=False) as consumer:
        group = consumer._group
        assert group is not None
        group.topics = ("a",)
        group.driver = driver = Driver(stable(TopicPartition("a", 0)), consumer.cluster, group._coordinator, group)

        async def fail() -> None:
            await asyncio.sleep(0)
            raise ValueError("the listener's")

        driver._working = asyncio.create_task(fail())
        with pytest.raises(ValueError, match="the listener's"):
            await consumer.unsubscribe()
        assert not group.is_subscribed
        assert driver.member.owned == ()


async def test_where_one_of_a_listeners_changes_fails_none_of_those_behind_it_comes_later() -> None:
    done: list[str] = []

    async def fail() -> None:
        raise ValueError("no such pattern")

    async def follow() -> None:
        done.append("follow")

    async with Consumer("127.0.0.1:1", group_id="g") as consumer:
        group = consumer._group
        assert group is not None
        group._asked += [fail, follow]
        with pytest.raises(ValueError, match="no such pattern"):
            await group.make_changes()
        await group.make_changes()
    assert done == []

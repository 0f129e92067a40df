"""The driver against brokers that go away; what goes well is tested in test_group_consumer.py."""

import asyncio
from typing import Any

import pytest

from kbroker.client import errors
from kbroker.client.admin import Admin
from kbroker.client.client_config import ConsumerConfig
from kbroker.client.cluster import Cluster
from kbroker.client.group.coordinator import Coordinator
from kbroker.client.group.driver import Driver
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.client.group.members import Diary, member, poll_until
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


class DeadCoordinator(Coordinator):
    """Every broker names one that is dead."""

    asked = 0

    async def find(self, timeout_ms: int | None = None) -> int:
        return 1

    async def ask(self, *request: Any, **how: Any) -> Any:
        self.asked += 1
        raise ConnectionRefusedError


class Nobody:
    def wake(self) -> None:
        pass

    async def do(self, work: Any) -> None:
        pass


def test_a_coordinator_that_is_named_though_it_is_dead_is_asked_ever_less_often() -> None:
    simulation = Simulation(seed=1)
    simulation.now = 1.0
    machine = simulation.machine("client")

    async def live() -> int:
        cluster = Cluster(ConsumerConfig(bootstrap="127.0.0.1:1"))
        coordinator = DeadCoordinator(cluster, "g")
        driver = Driver(stable(TopicPartition("a", 0)), cluster, coordinator, Nobody())
        driver.handle(driver.member.tick(driver.now))
        await asyncio.sleep(9)
        await driver.close()
        await cluster.close()
        return coordinator.asked

    living = machine.create_task(live())
    assert simulation.run(20, living.done)
    assert 5 < living.result() < 20

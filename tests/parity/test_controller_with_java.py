"""Our controller over brokers of Apache Kafka 3.9.2: they register, lead, follow, change ISRs, stop and come back.

Broker 1 is our controller with nothing but the APIs that brokers ask of a controller; brokers 2 and 3 are Java's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.client.connection import Connection
from kbroker.cluster.broker_channels import BrokerChannels
from kbroker.controller.broker_store import NewTopic
from kbroker.controller.controller_config import ControllerConfig
from kbroker.controller.runner import ControllerRunner
from kbroker.controller.znodes import BrokerRegistration, Endpoint, TopicPartition
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.dev.free_ports import free_ports
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.codec import decode
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import encode_response, read_request_header
from kbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.protocol.messages.replication import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kbroker.protocol.messages.transactions import InitProducerIdRequest
from tests.controller.fake_channels import FakeChannels
from tests.fixtures.brokers import kill_and_expire
from tests.fixtures.kafka import PROPERTIES, START_TIMEOUT, STOP_TIMEOUT, JavaBroker
from tests.fixtures.streams import stop_listening
from tests.fixtures.zookeeper import ZooKeeperAddress

pytestmark = pytest.mark.slow

SERVED = (
    ApiVersionsRequest,
    AlterPartitionRequest,
    AllocateProducerIdsRequest,
    ControlledShutdownRequest,
    LeaderAndIsrRequest,
    UpdateMetadataRequest,
    StopReplicaRequest,
)


class ControllerOnly:
    """Broker 1: a socket behind which only a controller lives."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.zookeeper = zookeeper
        self.channels = BrokerChannels(1)
        self.runner = ControllerRunner(
            zookeeper, 1, self.channels, ControllerConfig(leader_imbalance_check_interval_seconds=1)
        )
        self.answers = FakeChannels()
        self.seen: list[Any] = []
        self.server: asyncio.Server | None = None
        self.connections: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        await self.zookeeper.register_broker(BrokerRegistration(1, (Endpoint("PLAINTEXT", "127.0.0.1", port),)))
        await self.runner.start()

    async def stop(self) -> None:
        await self.runner.stop()
        await self.channels.close()
        assert self.server is not None
        await stop_listening(self.server)
        for writer in list(self.connections):
            writer.close()
        await self.server.wait_closed()
        await asyncio.sleep(0.05)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(writer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                header, position = read_request_header(frame)
                if header.client_id == "rdkafka":
                    break  # a client of the brokers' that heard of us: it must ask one of them
                request = decode(API_BY_KEY[header.api_key].request, frame, header.api_version, position)
                self.seen.append(request)
                answer = await self.answer(request, header.api_version)
                for part in encode_response(answer, header.api_version, header.correlation_id):
                    assert isinstance(part, bytes | bytearray | memoryview)
                    writer.write(part)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.connections.discard(writer)
            writer.close()

    async def answer(self, request: Any, version: int) -> Any:
        if isinstance(request, AlterPartitionRequest):
            return await self.runner.alter_partition(request, version)
        if isinstance(request, ControlledShutdownRequest):
            return await self.runner.controlled_shutdown(request, version)
        if isinstance(request, AllocateProducerIdsRequest):
            return await self.runner.allocate_producer_ids(request)
        if isinstance(request, ApiVersionsRequest):
            keys = [key for key, api in API_BY_KEY.items() if api.request in SERVED]
            versions = [
                ApiVersionsResponse.ApiVersion(
                    api_key=key, min_version=API_BY_KEY[key].min_version, max_version=API_BY_KEY[key].max_version
                )
                for key in sorted(keys)
            ]
            return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=versions)
        answer: LeaderAndIsrResponse | UpdateMetadataResponse | StopReplicaResponse
        answer = self.answers._answer(1, request)
        return answer


class JavaBrokers:
    """Apache Kafka's brokers 2 and 3 in a folder of the test's own."""

    def __init__(self, folder: Path, zookeeper: str, class_path: str) -> None:
        properties = {
            **PROPERTIES,
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": "12000",
            "num.partitions": "4",
            "offsets.topic.replication.factor": "2",
            "replica.lag.time.max.ms": "3000",
        }
        self.brokers = {
            broker_id: JavaBroker(broker_id, folder / f"broker-{broker_id}", port, properties, class_path)
            for broker_id, port in zip((2, 3), free_ports(2), strict=True)
        }

    async def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.brokers[broker_id].start()
        for broker_id in broker_ids:
            await asyncio.to_thread(self.brokers[broker_id].wait_until_ready, START_TIMEOUT)

    async def stop(self, broker_id: int) -> None:
        await asyncio.to_thread(self.brokers[broker_id].stop, STOP_TIMEOUT)

    def kill(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            kill_and_expire(self.brokers[broker_id])

    def bootstrap(self, *broker_ids: int) -> str:
        return ",".join(self.brokers[each].bootstrap for each in broker_ids)

    def has_folder(self, broker_id: int, name: str) -> bool:
        return (self.brokers[broker_id].log_dir / name).exists()


@pytest.fixture
def java(tmp_path: Path, zookeeper: ZooKeeperAddress, kafka_class_path: str) -> Iterator[JavaBrokers]:
    brokers = JavaBrokers(tmp_path, zookeeper.connect_string, kafka_class_path)
    yield brokers
    for broker in brokers.brokers.values():
        broker.kill()


@pytest.fixture
async def controller(zookeeper: ZooKeeperAddress) -> AsyncIterator[ControllerOnly]:
    session = ZooKeeper(zookeeper.connect_string, 6_000)
    await session.connect()
    await session.ensure_top_level_paths()
    node = ControllerOnly(session)
    await node.start()
    yield node
    await node.stop()
    await session.close()


async def until(condition: Any, what: str, timeout: float = 40.0) -> None:
    try:
        async with asyncio.timeout(timeout):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"in vain waited for: {what}")


async def take_producer_id(bootstrap: str) -> int:
    """A producer id from a Java broker, which has to ask the controller for a block of them."""
    host, _, port = bootstrap.partition(":")
    connection = await Connection.open(host, int(port), timeout=20)
    try:
        for _ in range(100):
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await connection.request(request, 4, timeout=20)
            if answer.error_code == ErrorCode.NONE:
                return int(answer.producer_id)
            await asyncio.sleep(0.1)
    finally:
        await connection.close()
    pytest.fail("no producer id within 10 s")


def produce(bootstrap: str, topic: str, count: int) -> None:
    """Records to every partition, acknowledged by the whole ISR."""
    from confluent_kafka import Producer

    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(
            topic,
            f"{number}",
            partition=number % 2,
            callback=lambda error, _message: failures.append(error) if error else None,
        )
    assert producer.flush(40) == 0
    assert not failures


async def test_java_brokers_live_under_our_controller(controller: ControllerOnly, java: JavaBrokers) -> None:
    """One history: start, create, produce, kill -9, fail over, return, ISR, preferred leader, shutdown, deletion."""
    state = controller.runner.state
    await java.start(2, 3)
    await until(lambda: {2, 3} <= set(state.brokers), "both brokers registered")
    topic = NewTopic("t", os.urandom(16), {0: [2, 3], 1: [3, 2]}, {"min.insync.replicas": "1"})
    await controller.zookeeper.create_topics([topic])
    await asyncio.to_thread(produce, java.bootstrap(2, 3), "t", 200)

    assert await take_producer_id(java.bootstrap(2)) == 0
    assert await take_producer_id(java.bootstrap(3)) == 1000

    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    java.kill(3)
    await until(lambda: state.leadership[second].leader == 2, "broker 2 leads what broker 3 led")
    await until(lambda: state.leadership[first].isr == (2,), "broker 3 left the ISR of what it followed")
    await asyncio.to_thread(produce, java.bootstrap(2), "t", 200)

    await java.start(3)
    await until(lambda: set(state.leadership[second].isr) == {2, 3}, "broker 3 back in the ISR by AlterPartition")
    await until(lambda: set(state.leadership[first].isr) == {2, 3}, "broker 3 back in both ISRs")
    assert any(isinstance(each, AlterPartitionRequest) for each in controller.seen)
    assert any(isinstance(each, AllocateProducerIdsRequest) for each in controller.seen)

    await until(lambda: state.leadership[second].leader == 3, "the preferred leader leads again")
    await java.stop(2)
    assert any(isinstance(each, ControlledShutdownRequest) for each in controller.seen)
    await until(lambda: 2 not in state.brokers, "broker 2 gone")
    assert state.leadership[first].leader == 3
    await asyncio.to_thread(produce, java.bootstrap(3), "t", 200)

    await controller.zookeeper.mark_topic_deleted("t")
    await until(lambda: not java.has_folder(3, "t-0"), "broker 3 deleted its replica")
    assert await controller.zookeeper.topic_exists("t")
    await java.start(2)
    await until(lambda: "t" not in state.assignments, "the topic deleted once broker 2 was back")
    assert not java.has_folder(2, "t-0")
    assert not await controller.zookeeper.topic_exists("t")

    await controller.runner.stop()
    await until_java_is_controller(controller.zookeeper)


async def until_java_is_controller(zookeeper: ZooKeeper) -> None:
    async with asyncio.timeout(20):
        node = None
        while node is None or node.broker_id == 1:
            await asyncio.sleep(0.1)
            node = await zookeeper.read_controller()
    assert node.broker_id in (2, 3)

"""The line to the controller, over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.cluster.controller_channel import ControllerChannel
from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.handlers.registry import CloseConnection
from kbroker.network.connection import Connection
from kbroker.network.server import Listener, Server
from kbroker.protocol.codec import decode
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.headers import encode_response, read_request_header
from kbroker.protocol.messages.api_versions import ApiVersionsResponse
from kbroker.protocol.messages.replication import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    UpdateMetadataRequest,
)


def told(controller_id: int, ports: dict[int, int]) -> UpdateMetadataRequest:
    """The controller says who it is, and where all brokers are."""
    request = UpdateMetadataRequest
    brokers = [
        request.UpdateMetadataBroker(
            id=broker,
            rack=None,
            endpoints=[
                request.UpdateMetadataEndpoint(port=port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0)
            ],
        )
        for broker, port in ports.items()
    ]
    return request(controller_id=controller_id, controller_epoch=1, broker_epoch=1, live_brokers=brokers)


def channel_to(metadata: MetadataCache, timeout_ms: int = 5000) -> ControllerChannel:
    return ControllerChannel(metadata, 1, "PLAINTEXT", timeout_ms)


@pytest.fixture
def metadata() -> MetadataCache:
    return MetadataCache()


@contextlib.contextmanager
def silent_controller() -> Iterator[int]:
    """Accepts connections and never answers: the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


class Controller:
    """Answers AllocateProducerIds with the codes given, the last one for ever."""

    def __init__(self, *codes: ErrorCode, newest_alter_partition: int = 3) -> None:
        self.codes = list(codes)
        self.newest_alter_partition = newest_alter_partition
        self.asked: list[AlterPartitionRequest] = []
        self.server = Server(self.dispatch)
        self.server.bind([Listener("PLAINTEXT", "127.0.0.1", 0)])
        self.server.start()
        self.port = self.server.ports["PLAINTEXT"]

    def dispatch(self, connection: Connection, frame: memoryview) -> Any:
        header, position = read_request_header(frame)
        answer: Any
        if header.api_key == 18:
            served = {67: 0, 56: self.newest_alter_partition}
            version = ApiVersionsResponse.ApiVersion
            entries = [version(api_key=key, min_version=0, max_version=newest) for key, newest in served.items()]
            answer = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=entries)
        elif header.api_key == 56:
            self.asked.append(decode(AlterPartitionRequest, bytes(frame), header.api_version, position))
            answer = AlterPartitionResponse(error_code=ErrorCode.NONE, topics=[])
        else:
            code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
            if code is ErrorCode.NETWORK_EXCEPTION:
                raise CloseConnection("gone")
            answer = AllocateProducerIdsResponse(error_code=code, producer_id_start=7, producer_id_len=1)
        return encode_response(answer, header.api_version, header.correlation_id)


def request() -> AllocateProducerIdsRequest:
    return AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)


@pytest.mark.parametrize("newest", [2, 3])
async def test_a_controller_that_knows_no_epochs_of_replicas_is_told_the_isr_without_them(
    metadata: MetadataCache, newest: int
) -> None:
    controller = Controller(ErrorCode.NONE, newest_alter_partition=newest)
    metadata.update(told(2, {2: controller.port}))
    channel, asked = channel_to(metadata), AlterPartitionRequest
    members = [asked.BrokerState(broker_id=1, broker_epoch=11), asked.BrokerState(broker_id=3, broker_epoch=33)]
    partition = asked.PartitionData(partition_index=5, leader_epoch=6, new_isr_with_epochs=members, partition_epoch=7)
    topics = [asked.TopicData(topic_id=bytes(range(16)), partitions=[partition])]
    await channel.request(asked(broker_id=1, broker_epoch=2, topics=topics))
    (heard,) = controller.asked
    assert (heard.broker_id, heard.broker_epoch, bytes(heard.topics[0].topic_id)) == (1, 2, bytes(range(16)))
    (found,) = heard.topics[0].partitions
    assert (found.partition_index, found.leader_epoch, found.partition_epoch) == (5, 6, 7)
    assert (list(found.new_isr) or [each.broker_id for each in found.new_isr_with_epochs]) == [1, 3]
    await channel.close()
    await controller.server.stop(0)


async def test_the_controller_is_asked_again_until_it_is_one(metadata: MetadataCache) -> None:
    controller = Controller(ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NONE)
    metadata.update(told(2, {2: controller.port}))
    channel = channel_to(metadata)
    assert (await channel.request(request())).producer_id_start == 7
    await channel.close()
    await controller.server.stop(0.1)


async def test_a_controller_that_moves_is_followed(metadata: MetadataCache) -> None:
    old, new = Controller(ErrorCode.NOT_CONTROLLER), Controller(ErrorCode.NONE)
    ports = {2: old.port, 3: new.port}
    metadata.update(told(2, ports))
    channel = channel_to(metadata)
    asked = asyncio.create_task(channel.request(request()))
    await asyncio.sleep(0.15)
    metadata.update(told(3, ports))
    assert (await asked).error_code is ErrorCode.NONE
    await channel.close()
    for controller in (old, new):
        await controller.server.stop(0.1)


async def test_a_controller_that_hangs_is_not_waited_for_when_another_took_over(metadata: MetadataCache) -> None:
    new = Controller(ErrorCode.NONE)
    with silent_controller() as port:
        ports = {2: port, 3: new.port}
        metadata.update(told(2, ports))
        channel = channel_to(metadata, 60_000)
        asked = asyncio.create_task(channel.request(request()))
        await asyncio.sleep(0.05)
        metadata.update(told(2, ports))
        await asyncio.sleep(0.05)
        assert not asked.done()
        metadata.update(told(3, ports))
        async with asyncio.timeout(20):
            assert (await asked).error_code is ErrorCode.NONE
        await channel.close()
    await new.server.stop(0.1)


async def test_what_a_silent_controller_was_asked_in_vain_spoils_nothing(metadata: MetadataCache) -> None:
    """The time is up while the versions are not known yet: the next request begins anew."""
    new = Controller(ErrorCode.NONE)
    channel = channel_to(metadata)
    with silent_controller() as port:
        metadata.update(told(2, {2: port}))
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await channel.request(request(), 0.1)
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await channel.request(request(), 0.1)
    metadata.update(told(2, {2: new.port}))
    assert (await channel.request(request())).error_code is ErrorCode.NONE
    await channel.close()
    await new.server.stop(0.1)


async def test_without_a_controller_the_time_ends_it(metadata: MetadataCache) -> None:
    with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
        await channel_to(metadata, 200).request(request())


class Here:
    """The controller in our own broker."""

    def __init__(self, answer: AllocateProducerIdsResponse | None) -> None:
        self.is_active = True
        self.answer = answer

    async def serve(self, request: Any, version: int) -> Any:
        if self.answer is None:
            await asyncio.Event().wait()
        return self.answer


ASKED = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)


async def test_a_controller_here_is_asked_without_a_connection(metadata: MetadataCache) -> None:
    answer = AllocateProducerIdsResponse(error_code=ErrorCode.NONE, producer_id_start=7, producer_id_len=1)
    assert await ControllerChannel(metadata, 1, "PLAINTEXT", 5000, Here(answer)).request(ASKED) is answer


async def test_a_controller_here_that_is_stuck_is_waited_for_no_longer_than_another(metadata: MetadataCache) -> None:
    channel = ControllerChannel(metadata, 1, "PLAINTEXT", 50, Here(None))
    with pytest.raises(KafkaError) as raised:
        await asyncio.wait_for(channel.request(ASKED), 20)
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_a_controller_here_whose_term_ends_is_left_for_the_next(metadata: MetadataCache) -> None:
    there = Controller(ErrorCode.NONE)
    here = Here(
        AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER, producer_id_start=0, producer_id_len=0)
    )
    channel = ControllerChannel(metadata, 1, "PLAINTEXT", 5000, here)
    metadata.update(told(2, {2: there.port}))
    asked = asyncio.create_task(channel.request(ASKED))
    await asyncio.sleep(0)
    here.is_active = False
    assert (await asked).producer_id_start == 7
    await channel.close()
    await there.server.stop(0)

"""The line to the controller, over real sockets."""

import asyncio
from typing import Any

import pytest

from kbroker.connection import Connection
from kbroker.controller_channel import ControllerChannel
from kbroker.dispatch import CloseConnection
from kbroker.server import Listener, Server
from protocol.errors import ErrorCode, KafkaError
from protocol.headers import encode_response, read_request_header
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.replication import AllocateProducerIdsRequest, AllocateProducerIdsResponse


class Metadata:
    """Who the controller is."""

    def __init__(self, controller_id: int | None, ports: dict[int, int]) -> None:
        self.controller_id = controller_id
        self.ports = ports

    def endpoint(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        return ("127.0.0.1", self.ports[broker_id]) if broker_id in self.ports else None


class Controller:
    """Answers AllocateProducerIds with the codes given, the last one for ever."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.server = Server(self.dispatch)
        self.server.bind([Listener("PLAINTEXT", "127.0.0.1", 0)])
        self.server.start()
        self.port = self.server.ports["PLAINTEXT"]

    def dispatch(self, connection: Connection, frame: memoryview) -> Any:
        header, _ = read_request_header(frame)
        answer: Any
        if header.api_key == 18:
            entry = ApiVersionsResponse.ApiVersion(api_key=67, min_version=0, max_version=0)
            answer = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[entry])
        else:
            code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
            if code is ErrorCode.NETWORK_EXCEPTION:
                raise CloseConnection("gone")
            answer = AllocateProducerIdsResponse(error_code=code, producer_id_start=7, producer_id_len=1)
        return encode_response(answer, header.api_version, header.correlation_id)


def request() -> AllocateProducerIdsRequest:
    return AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)


async def test_the_controller_is_asked_again_until_it_is_one() -> None:
    controller = Controller(ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NONE)
    channel = ControllerChannel(Metadata(2, {2: controller.port}), 1, "PLAINTEXT", 5000)  # type: ignore[arg-type]
    assert (await channel.request(request())).producer_id_start == 7
    await channel.close()
    await controller.server.stop(0.1)


async def test_a_controller_that_moves_is_followed() -> None:
    old, new = Controller(ErrorCode.NOT_CONTROLLER), Controller(ErrorCode.NONE)
    metadata = Metadata(2, {2: old.port, 3: new.port})
    channel = ControllerChannel(metadata, 1, "PLAINTEXT", 5000)  # type: ignore[arg-type]
    asked = asyncio.create_task(channel.request(request()))
    await asyncio.sleep(0.15)
    metadata.controller_id = 3
    assert (await asked).error_code is ErrorCode.NONE
    await channel.close()
    for controller in (old, new):
        await controller.server.stop(0.1)


async def test_without_a_controller_the_time_ends_it() -> None:
    channel = ControllerChannel(Metadata(None, {}), 1, "PLAINTEXT", 200)  # type: ignore[arg-type]
    with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
        await channel.request(request())

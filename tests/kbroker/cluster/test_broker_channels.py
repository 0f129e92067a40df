"""The controller's lines to the brokers, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kbroker.cluster import broker_channels
from kbroker.cluster.broker_channels import BrokerChannels
from kbroker.cluster.setup_timeout import SetupTimeout
from kbroker.network.connection import Connection
from kbroker.network.dispatch import PENDING
from kbroker.network.server import Listener, Server
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import encode_response, read_request_header
from kbroker.protocol.messages.replication import UpdateMetadataRequest, UpdateMetadataResponse
from kbroker.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse


class Broker:
    """Answers every request, or holds its peace."""

    def __init__(self, silent: bool = False, port: int = 0) -> None:
        self.silent = silent
        self.seen: list[int] = []
        self.server = Server(self.dispatch)
        self.server.bind([Listener("PLAINTEXT", "127.0.0.1", port)])
        self.server.start()
        self.port = self.server.ports["PLAINTEXT"]

    def dispatch(self, connection: Connection, frame: memoryview) -> Any:
        header, _ = read_request_header(frame)
        self.seen.append(header.correlation_id)
        if self.silent:
            return PENDING
        return encode_response(DeleteTopicsResponse(responses=[]), header.api_version, header.correlation_id)


def request(number: int) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=[str(number)], timeout_ms=1)


@pytest.fixture
async def channels() -> AsyncIterator[BrokerChannels]:
    made = BrokerChannels(1, request_timeout_ms=5000)
    yield made
    await made.close()


async def until(answers: list[Any], count: int) -> None:
    async with asyncio.timeout(30):
        while len(answers) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_requests_are_answered_one_by_one_in_order(channels: BrokerChannels) -> None:
    broker = Broker()
    answers: list[Any] = []
    channels.add_broker(2, "127.0.0.1", broker.port)
    for number in range(20):
        channels.send(2, request(number), 5, lambda answer, number=number: answers.append(number))  # type: ignore[misc]
    await until(answers, 20)
    assert answers == list(range(20))
    assert broker.seen == sorted(broker.seen)
    await broker.server.stop(0.1)


async def test_a_broker_with_a_name_that_no_host_can_have_is_tried_again(
    channels: BrokerChannels, caplog: pytest.LogCaptureFixture
) -> None:
    channels.add_broker(2, "broker..example", 9092)
    channels.send(2, request(0), 5, lambda answer: None)
    async with asyncio.timeout(30):
        while "trying again" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert "DeleteTopicsRequest not sent" in caplog.text
    assert "no host has such a name" in caplog.text


async def test_requests_do_not_wait_for_each_other_and_go_again_in_order(channels: BrokerChannels) -> None:
    silent = Broker(silent=True)
    answers: list[Any] = []
    channels.add_broker(2, "127.0.0.1", silent.port)
    for number in range(8):
        channels.send(2, request(number), 5, lambda answer, number=number: answers.append(number))  # type: ignore[misc]
    await until(silent.seen, 1)  # the server reads on once the first is answered
    await silent.server.stop(0.1)
    assert answers == []
    back = Broker(port=silent.port)
    await until(answers, 8)
    assert answers == list(range(8))
    assert len(back.seen) == 8
    await back.server.stop(0.1)


async def test_a_broker_that_is_too_slow_is_asked_again() -> None:
    channels = BrokerChannels(1, request_timeout_ms=200)
    slow = Broker(silent=True)
    answers: list[Any] = []
    channels.add_broker(2, "127.0.0.1", slow.port)
    channels.send(2, request(1), 5, answers.append)
    await until(slow.seen, 2)
    slow.silent = False
    await until(answers, 1)
    await channels.close()
    await slow.server.stop(0.1)


async def test_draining_waits_for_the_answers_of_brokers_that_are_there() -> None:
    channels = BrokerChannels(1)
    broker, gone = Broker(), Broker()
    await gone.server.stop(0.1)
    answers: list[Any] = []
    channels.add_broker(2, "127.0.0.1", broker.port)
    channels.add_broker(3, "127.0.0.1", gone.port)
    for number in range(10):
        channels.send(2, request(number), 5, answers.append)
        channels.send(3, request(number), 5, answers.append)
    async with asyncio.timeout(20):
        await channels.drain(60)
    assert len(answers) == 10
    await channels.close()
    await broker.server.stop(0.1)


async def test_a_request_waits_for_its_broker_to_come(channels: BrokerChannels) -> None:
    early = Broker()
    port = early.port
    await early.server.stop(0.1)
    answers: list[Any] = []
    channels.add_broker(2, "127.0.0.1", port)
    channels.send(2, request(1), 5, answers.append)
    await asyncio.sleep(0.3)
    assert answers == []
    assert channels.waiting() == {2: 1}
    late = Broker(port=port)
    await until(answers, 1)
    assert channels.waiting() == {2: 0}
    await late.server.stop(0.1)


async def test_a_broker_that_hangs_delays_only_itself(channels: BrokerChannels) -> None:
    hanging, healthy = Broker(silent=True), Broker()
    answers: list[Any] = []
    channels.add_broker(2, "127.0.0.1", hanging.port)
    channels.add_broker(3, "127.0.0.1", healthy.port)
    channels.send(2, request(1), 5, lambda answer: answers.append("hanging"))
    channels.send(3, request(2), 5, lambda answer: answers.append("healthy"))
    await until(answers, 1)
    assert answers == ["healthy"]
    await hanging.server.stop(0.1)
    await healthy.server.stop(0.1)


@pytest.mark.parametrize("is_there", [True, False])
async def test_what_waits_for_a_broker_goes_with_it_to_another_address(
    channels: BrokerChannels, is_there: bool
) -> None:
    before, after = Broker(silent=True), Broker()
    if not is_there:
        await before.server.stop(0)
    answers: list[Any] = []
    channels.add_broker(2, "127.0.0.1", before.port)
    for number in range(8):
        channels.send(2, request(number), 5, lambda answer, number=number: answers.append(number))  # type: ignore[misc]
    if is_there:
        await until(before.seen, 1)
    channels.add_broker(2, "127.0.0.1", after.port)
    channels.send(2, request(8), 5, lambda answer: answers.append(8))
    await until(answers, 9)
    assert answers == list(range(9)), "once, and in order"
    assert len(after.seen) == 9
    await before.server.stop(0)
    await after.server.stop(0)


async def test_a_broker_that_moves_twice_and_goes_leaves_nothing_behind(channels: BrokerChannels) -> None:
    broker = Broker()
    channels.add_broker(2, "127.0.0.1", broker.port)
    first = channels._channels[2].task
    for _ in range(2):
        channels.add_broker(2, "127.0.0.1", broker.port)
    last = channels._channels[2].task
    await channels.close()
    assert first.done()
    assert last.done()
    await broker.server.stop(0)


async def test_a_removed_broker_is_not_written_to_and_calls_nobody_back(channels: BrokerChannels) -> None:
    broker = Broker(silent=True)
    answers: list[Any] = []
    channels.add_broker(2, "127.0.0.1", broker.port)
    channels.send(2, request(1), 5, answers.append)
    async with asyncio.timeout(20):
        while not broker.seen:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    channels.remove_broker(2)
    channels.remove_broker(2)
    channels.send(2, request(2), 5, answers.append)
    await asyncio.sleep(0.2)
    assert answers == []
    assert len(broker.seen) == 1
    await broker.server.stop(0.1)


async def test_a_bug_in_a_callback_does_not_stop_the_channel(
    channels: BrokerChannels, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    answers: list[Any] = []

    def broken(answer: Any) -> None:
        raise ZeroDivisionError

    channels.add_broker(2, "127.0.0.1", broker.port)
    channels.send(2, request(1), 5, broken)
    channels.send(2, request(2), 5, answers.append)
    await until(answers, 1)
    assert "was not handled" in caplog.text
    assert UpdateMetadataResponse(error_code=ErrorCode.NONE) != answers[0]
    await broker.server.stop(0.1)


async def test_a_request_that_is_not_sent_by_a_bug_is_told_and_tried_again(
    channels: BrokerChannels, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    answers: list[Any] = []
    real, tried = SetupTimeout.connect, []

    async def breaks_once(self: SetupTimeout, address: tuple[str, int], **arguments: Any) -> Any:
        tried.append(address)
        return await real(self, address, **arguments) if len(tried) > 1 else 1 / 0

    monkeypatch.setattr(SetupTimeout, "connect", breaks_once)
    channels.add_broker(2, "127.0.0.1", broker.port)
    for number in (1, 2):
        channels.send(2, request(number), 5, lambda answer, number=number: answers.append(number))  # type: ignore[misc]
    await until(answers, 2)
    assert answers == [1, 2]
    assert len(tried) == 2
    assert "DeleteTopicsRequest not sent, trying again" in caplog.text
    assert "ZeroDivisionError" in caplog.text, "with its traceback"
    await broker.server.stop(0.1)


async def test_a_request_that_meets_the_end_of_its_connection_or_of_memory_is_not_left_out(
    channels: BrokerChannels, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    answers: list[Any] = []
    connect, share = SetupTimeout.connect, channels._shared.share
    faults = ["connection", "memory"]

    async def ends_once(self: SetupTimeout, address: tuple[str, int], **arguments: Any) -> Any:
        connection = await connect(self, address, **arguments)
        if "connection" in faults:
            faults.remove("connection")
            connection.abort()
        return connection

    def has_no_room_once(each: Any, version: int) -> Any:
        if faults == ["memory"] and broker.seen:
            faults.clear()
            raise MemoryError
        return share(each, version)

    monkeypatch.setattr(SetupTimeout, "connect", ends_once)
    monkeypatch.setattr(channels._shared, "share", has_no_room_once)
    channels.add_broker(2, "127.0.0.1", broker.port)
    for number in (1, 2):
        channels.send(2, request(number), 5, lambda answer, number=number: answers.append(number))  # type: ignore[misc]
        await until(answers, number)
    assert answers == [1, 2]
    assert not faults
    assert "left out" not in caplog.text
    await broker.server.stop(0.1)


def too_long_for(version: int) -> Any:
    """A request with a name that has no room in its length."""
    name = "n" * 40_000
    return DeleteTopicsRequest(topic_names=[name], timeout_ms=1) if version == 3 else deletion(name)


@pytest.mark.parametrize("version", [3, 5])
async def test_a_request_that_cannot_be_encoded_is_left_out_and_the_broker_told_anew(
    channels: BrokerChannels, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(broker_channels, "ANEW_PAUSE_S", 0)
    broker = Broker()
    answers: list[Any] = []

    def tell_anew() -> None:
        channels.send(2, request(9), 3, lambda _: answers.append(9))

    channels.add_broker(2, "127.0.0.1", broker.port, tell_anew)
    channels.send(2, too_long_for(version), version, lambda _: answers.append("too long"))
    async with asyncio.timeout(30):
        while not broker.seen and "trying again" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert "trying again" not in caplog.text, "the connection is not at fault"
    await until(answers, 1)
    assert answers == [9]
    assert "cannot be encoded and is left out" in caplog.text
    assert any(record.exc_info for record in caplog.records)
    await broker.server.stop(0.1)


async def test_however_much_cannot_be_encoded_the_rest_goes_on_and_all_is_told_anew_once_later(
    channels: BrokerChannels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_channels, "ANEW_PAUSE_S", 3600)
    broker = Broker()
    answers: list[Any] = []
    behind: list[int] = []
    channels.add_broker(2, "127.0.0.1", broker.port, lambda: behind.append(2))
    channel, told = channels._channels[2], []
    for number in range(3):
        channels.send(2, request(number), 3, lambda answer, number=number: answers.append(number))  # type: ignore[misc]
        channels.send(2, too_long_for(3), 3, answers.append)
        channels.send(2, request(-1), 3, lambda _: told.append(channel.anew))
        await until(told, number + 1)
    assert answers == [0, 1, 2]
    assert told[0] is not None
    assert told == [told[0]] * 3
    assert behind == []
    await channels.close()
    assert told[0].cancelled()
    await broker.server.stop(0.1)


@pytest.mark.parametrize("comes", [True, False])
async def test_a_line_whose_queue_is_dropped_while_it_connects_goes_on(
    channels: BrokerChannels, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    monkeypatch.setattr(broker_channels, "MOST_QUEUED", 5)
    broker = Broker()
    answers: list[Any] = []
    behind: list[int] = []
    real, begun, full, over = SetupTimeout.connect, asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def waits_once(self: SetupTimeout, address: tuple[str, int], **arguments: Any) -> Any:
        is_first = not begun.is_set()
        begun.set()
        await full.wait()
        fails = is_first and not comes
        connection = None if fails else await real(self, address, **arguments)
        over.set()  # the line goes on in this very turn, before the test does
        if fails:
            raise ConnectionRefusedError
        return connection

    monkeypatch.setattr(SetupTimeout, "connect", waits_once)
    channels.add_broker(2, "127.0.0.1", broker.port, lambda: behind.append(2))
    channel = channels._channels[2]
    channels.send(2, request(0), 5, answers.append)
    async with asyncio.timeout(30):
        await begun.wait()
        for number in range(5):
            channels.send(2, request(number), 5, answers.append)
        assert not channel.queue
        assert behind == [2]
        full.set()
        await over.wait()
    assert not channel.task.done()
    assert (channel.connection is not None) == comes
    assert not channel.is_busy
    channels.send(2, request(9), 5, lambda _: answers.append(9))
    await until(answers, 1)
    assert answers == [9]
    await broker.server.stop(0.1)


def deletion(name: str = "t") -> UpdateMetadataRequest:
    gone = UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=-2, leader_epoch=0, isr=[], zk_version=0, replicas=[]
    )
    topic = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=name, partition_states=[gone])
    return UpdateMetadataRequest(
        controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic], live_brokers=[]
    )


async def test_what_waits_for_a_broker_far_behind_is_dropped_but_for_deletions(
    channels: BrokerChannels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_channels, "MOST_QUEUED", 20)
    silent = Broker(silent=True)
    behind: list[int] = []
    channels.add_broker(2, "127.0.0.1", silent.port, lambda: behind.append(2))
    channels.send(2, deletion(), 8, lambda _: None)
    for number in range(100):
        channels.send(2, request(number), 5, lambda _: None)
        assert len(channels._channels[2].queue) <= 21
    waiting = [each.request for each in channels._channels[2].queue]
    assert isinstance(waiting[0], UpdateMetadataRequest)
    assert behind == [2] * 4
    await silent.server.stop(0)

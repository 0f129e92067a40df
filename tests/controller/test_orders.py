"""Instructions that reach the channels, and answers after the end of a term."""

from __future__ import annotations

import asyncio
from typing import Any

from kbroker.controller import events
from kbroker.controller.controller_store import ElectedController
from kbroker.controller.instructions import Answer, CloseChannel, ForgetTopics, OpenChannel, Pause, ReadTopics, Send
from kbroker.controller.orders import Orders
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import StopReplicaRequest
from tests.controller.conftest import Connect, until
from tests.controller.fake_channels import FakeChannels

STOP = StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[])


async def test_channels_are_used_and_their_answers_become_events(connect: Connect) -> None:
    channels = FakeChannels()
    told: list[Any] = []
    answers: dict[int, Any] = {}

    def answer(call: int, response: Any) -> None:
        answers[call] = response

    orders = Orders(await connect(), channels, ElectedController(1, 1), told.append, lambda _name: None, answer)
    assert await orders.carry_out(OpenChannel(2, "h", 1)) is None
    assert await orders.carry_out(Send(2, STOP, 4)) is None
    assert await orders.carry_out(Pause()) == events.Done()
    assert await orders.carry_out(Answer(7, "done")) is None
    assert answers == {7: "done"}
    assert [(type(each), each.broker_id) for each in told] == [(events.StopReplicaAnswered, 2)]
    assert told[0].response.error_code == ErrorCode.NONE
    await orders.carry_out(CloseChannel(2))
    assert not channels.addresses


async def test_nothing_is_told_after_the_term(connect: Connect) -> None:
    channels = FakeChannels()
    told: list[Any] = []
    orders = Orders(
        await connect(), channels, ElectedController(1, 1), told.append, lambda _name: None, lambda _call, _answer: None
    )
    await orders.carry_out(OpenChannel(2, "h", 1))
    await orders.carry_out(Send(2, STOP, 4))
    orders.end()
    await asyncio.sleep(0.01)
    assert not told
    assert not channels.addresses


async def test_topics_are_watched_until_they_are_forgotten(connect: Connect) -> None:
    session = await connect()
    changed: list[str] = []
    orders = Orders(
        session, FakeChannels(), ElectedController(1, 1), print, changed.append, lambda _call, _answer: None
    )
    await session.create("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1]}}')
    read = await orders.carry_out(ReadTopics(("t", "missing")))
    assert isinstance(read, events.TopicsRead)
    assert list(read.topics) == ["t"]
    await session.set("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1],"1":[1]}}')
    await until(lambda: changed == ["t"])
    await orders.carry_out(ReadTopics(("t",)))
    await orders.carry_out(ForgetTopics(("t",)))
    await session.set("/brokers/topics/t", b"{}")
    await session.exists("/brokers")
    assert changed == ["t"]

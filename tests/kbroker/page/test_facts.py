import asyncio

import pytest

from kbroker.client.admin import Admin
from kbroker.client.errors import NotConnected, error_for
from kbroker.client.types import PartitionDescription
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page.facts import Facts, Remembered, health_of, led, reason, told
from kbroker.protocol.errors import ErrorCode


async def test_many_who_ask_at_once_wait_for_one_answer() -> None:
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)
        return asked

    known = Remembered(ask, 3600)
    assert await asyncio.gather(*(known.get() for _ in range(10))) == [1] * 10
    known.forget()
    assert await known.get() == 2
    old = Remembered(ask, 0)
    assert [await old.get(), await old.get()] == [3, 4]


async def test_a_question_that_failed_is_asked_again() -> None:
    answers = iter([NotConnected("away"), None])

    async def ask() -> str:
        problem = next(answers)
        if problem is not None:
            raise problem
        return "here"

    known = Remembered(ask, 3600)
    with pytest.raises(NotConnected):
        await known.get()
    assert await known.get() == "here"


async def test_a_refusal_is_a_line_of_text() -> None:
    async def refuse() -> int:
        raise error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")

    assert (await told(refuse())).problem == "CLUSTER_AUTHORIZATION_FAILED: not you"
    assert "no such thing" in reason(error_for(ErrorCode.UNSUPPORTED_VERSION))
    assert reason(error_for(ErrorCode.UNSUPPORTED_VERSION, "Kafka does not tell")) == "Kafka does not tell"
    assert reason(TimeoutError()) == "no answer in time"


def test_partitions_are_counted_by_how_they_are() -> None:
    def partition(leader: int | None, isr: tuple[int, ...]) -> PartitionDescription:
        return PartitionDescription(0, leader, 0, (1, 2), isr, ())

    health = health_of([partition(1, (1, 2)), partition(1, (1,)), partition(None, ())])
    assert (health.partitions, health.under_replicated, health.offline, health.is_well) == (3, 1, 1, False)
    assert health_of([]).is_well


async def test_offsets_and_sizes_of_a_real_topic(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin:
        facts = Facts(admin)
        await admin.create_topic(topic_name, 3)
        described = await facts.topic(topic_name)
        keys = led(described)
        assert await facts.offsets(keys) == dict.fromkeys(keys, (0, 0))
        assert await facts.offsets([]) == {}
        disks = await facts.disks.get()
        assert set(disks.replicas_of(topic_name)) == {(number, 1) for number in range(3)}
        assert disks.bytes_of_topics()[topic_name] == 0
        assert not disks.problems

import asyncio

import pytest

from kbroker.client.admin import Admin
from kbroker.client.errors import NotConnected, error_for
from kbroker.client.types import PartitionDescription
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page import facts
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


async def test_a_question_that_failed_is_asked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([NotConnected("away"), None])

    async def ask() -> str:
        problem = next(answers)
        if problem is not None:
            raise problem
        return "here"

    monkeypatch.setattr(facts, "SHORT_S", 3600.0)
    known = Remembered(ask, 3600)
    for _ in range(2):
        with pytest.raises(NotConnected):
            await known.get()
    monkeypatch.setattr(facts, "SHORT_S", 0.0)
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
        asked = Facts(admin)
        await admin.create_topic(topic_name, 3)
        described = await asked.topic(topic_name)
        keys = led(described)
        assert await asked.offsets(keys) == dict.fromkeys(keys, (0, 0))
        assert await asked.offsets([]) == {}
        disks = await asked.disks.get()
        assert set(disks.replicas_of(topic_name)) == {(number, 1) for number in range(3)}
        assert disks.bytes_of_topics()[topic_name] == 0
        assert not disks.problems


async def test_many_who_ask_at_once_share_a_failure_and_the_next_hear_of_it() -> None:
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)
        raise NotConnected("away")

    known = Remembered(ask, 3600)
    outcomes = await asyncio.gather(*(known.get() for _ in range(8)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NotConnected] * 8
    assert asked == 1


async def test_who_leaves_does_not_end_the_question_of_others() -> None:
    go = asyncio.Event()

    async def ask() -> str:
        await go.wait()
        return "here"

    known = Remembered(ask, 3600)
    first, second = asyncio.ensure_future(known.get()), asyncio.ensure_future(known.get())
    await asyncio.sleep(0)
    first.cancel()
    go.set()
    assert await second == "here"

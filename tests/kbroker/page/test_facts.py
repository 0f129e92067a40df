import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from kbroker.client.admin import Admin
from kbroker.client.errors import NotConnected, error_for
from kbroker.client.types import (
    EARLIEST,
    BrokerDescription,
    ClusterDescription,
    GroupListing,
    LogDirDescription,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionDescription,
    Reassignment,
    TopicDescription,
    TopicPartition,
)
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page import facts
from kbroker.page.facts import Disks, Facts, Health, Remembered, health_of, led, reason, told, whole_sum
from kbroker.page.lags import sums
from kbroker.page.replica_map import Moves
from kbroker.page.topic_views import records_of
from kbroker.protocol.errors import ErrorCode

T = TypeVar("T")


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


async def test_a_question_that_was_cancelled_is_asked_again_at_once() -> None:
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise asyncio.CancelledError
        return asked

    known = Remembered(ask, 3600)
    with pytest.raises(asyncio.CancelledError):
        await known.get()
    assert await known.get() == 2


async def test_what_is_a_little_old_is_shown_while_a_newer_answer_is_on_its_way() -> None:
    asked = 0
    may_answer = asyncio.Event()
    may_answer.set()

    async def ask() -> int:
        nonlocal asked
        asked += 1
        number = asked
        await may_answer.wait()
        return number

    known = Remembered(ask, 0, 3600)
    assert await known.get() == 1
    may_answer.clear()
    assert [await known.get(), await known.get()] == [1, 1], "nobody waits"
    await asyncio.sleep(0)
    assert asked == 2, "one is on its way for both who came"
    may_answer.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert await known.get() == 2
    await asyncio.sleep(0)
    known.forget()
    assert await known.get() == 4, "what was changed is not shown as it was"


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

    def health(*partitions: PartitionDescription, moves: Moves | None = None) -> Health:
        return health_of(TopicDescription("t", b"", False, partitions), moves or {})

    found = health(partition(1, (1, 2)), partition(1, (1,)), partition(None, ()))
    assert (found.partitions, found.under_replicated, found.offline, found.is_well) == (3, 1, 1, False)
    assert health().is_well
    arriving = {TopicPartition("t", 0): Reassignment((1, 2), (2,), ())}
    assert health(partition(1, (1,)), moves=arriving).is_well
    assert not health(partition(2, (2,)), moves=arriving).is_well


async def test_offsets_and_sizes_of_a_real_topic(broker: BrokerProcess, topic_name: str) -> None:
    async with Admin(broker.bootstrap) as admin:
        asked = Facts(admin)
        await admin.create_topic(topic_name, 3)
        described = await asked.topic(topic_name)
        keys = led(described)
        assert await asked.offsets_in(described) == dict.fromkeys(keys, (0, 0))
        assert await asked.offsets(keys, {topic_name: described}) == dict.fromkeys(keys, (0, 0))
        assert await asked.offsets([], {}) == {}
        disks = await asked.disks.get()
        assert set(disks.replicas_of(topic_name)) == {(number, 1) for number in range(3)}
        assert disks.bytes_of_topic(topic_name) == 0
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


def two_leaders() -> TopicDescription:
    """A topic whose partitions 0 and 1 are led by brokers 1 and 2."""
    return TopicDescription(
        "t", bytes(16), False, tuple(PartitionDescription(n, n + 1, 0, (n + 1,), (n + 1,), ()) for n in range(2))
    )


class OneBrokerIsSilent:
    """A cluster's calls, where broker 2 does not answer."""

    def __getattr__(self, name: str) -> Any:
        return None

    async def describe_topics(self) -> dict[str, TopicDescription]:
        return {"t": two_leaders()}

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("c", 1, tuple(BrokerDescription(number, "host", 1, None) for number in (1, 2)))

    async def list_groups(self, *, brokers: list[int]) -> dict[str, GroupListing]:
        if brokers == [2]:
            raise NotConnected("silent")
        return {"one": GroupListing("one", "consumer", "Stable", "classic")}

    async def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        if any(key.partition == 1 for key in wanted):
            raise NotConnected("silent")
        return {key: OffsetAndTimestamp(0 if at == EARLIEST else 30, 0, 0) for key, at in wanted.items()}

    async def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        if group == "hidden":
            raise NotConnected("silent")
        return {TopicPartition("t", number): OffsetAndMetadata(10) for number in range(1 if group == "one" else 2)}


async def test_a_silent_broker_costs_only_the_offsets_of_its_own_partitions() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    silent: Any = OneBrokerIsSilent()
    assert await Facts(silent).offsets([first, second], {"t": two_leaders()}) == {first: (0, 30)}


class AllAnswer(OneBrokerIsSilent):
    """A cluster's calls by a client that has heard of broker 2's successor."""

    async def list_offsets(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        return {key: OffsetAndTimestamp(0 if at == EARLIEST else 30, 0, 0) for key, at in wanted.items()}

    async def ask(self, question: Callable[[Facts], Coroutine[Any, Any, T]]) -> T:
        asked: Any = self
        return await question(Facts(asked))


async def test_offsets_and_lags_are_asked_for_where_the_news_of_leaders_is() -> None:
    silent: Any = OneBrokerIsSilent()
    known = Facts(silent, AllAnswer())
    both = [TopicPartition("t", number) for number in range(2)]
    assert await known.offsets(both, {"t": two_leaders()}) == dict.fromkeys(both, (0, 30))
    assert [each.lag for each in await sums(known, ["both"])] == [40]


async def test_a_silent_broker_costs_only_the_groups_that_it_coordinates() -> None:
    silent: Any = OneBrokerIsSilent()
    found = await Facts(silent).groups.get()
    assert (list(found.groups), found.problems) == (["one"], {2: "silent"})


async def test_a_lag_that_is_known_in_part_is_not_told_as_the_whole() -> None:
    silent: Any = OneBrokerIsSilent()
    found = {each.group: each.lag for each in await sums(Facts(silent), ["one", "both", "hidden"])}
    assert found == {"one": 20, "both": None, "hidden": None}


def test_a_sum_of_what_is_not_known_is_not_known() -> None:
    assert (whole_sum([1, 2]), whole_sum([]), whole_sum([1, None])) == (3, 0, None)
    topic = two_leaders()
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    assert records_of(topic, {first: (1, 3)}) is None
    assert records_of(topic, {first: (1, 3), second: (0, 5)}) == 7


def test_sizes_are_whole_when_all_brokers_with_a_copy_have_told() -> None:
    one, two = (LogDirDescription(broker, "/data", -1, -1, None, ()) for broker in (1, 2))
    assert not Disks((one,), {}).knows_all_of(two_leaders())
    assert Disks((one, two), {}).knows_all_of(two_leaders())

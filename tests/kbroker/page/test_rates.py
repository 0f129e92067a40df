import asyncio
from typing import Any

import pytest

from kbroker.client.admin import Admin
from kbroker.client.producer import Producer
from kbroker.client.types import PartitionDescription, TopicDescription
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page import rates
from kbroker.page.facts import Facts
from kbroker.page.rates import HEIGHT, WIDTH, Counts, Rates, Ring, Watch, sizes_of
from tests.kbroker.page.visiting import until, visiting


def test_a_rate_is_what_was_added_between_two_looks() -> None:
    ring = Ring()
    looks: list[dict[str, Counts | None]] = [{"a": {0: 5, 1: 5}}, {"a": {0: 10, 1: 20}}, {"a": None}, {"a": {0: 40}}]
    looks += [{"a": {0: 5, 1: 7}}, {"a": {0: 6, 1: 8}}]
    for number, counts in enumerate(looks):
        ring.add(2.0 * number, counts)
    found = ring.of("a")
    assert found.each == (10.0, None, None, 0.0, 1.0)  # less than there was, and a new partition, begin anew
    assert (found.now, found.most, found.seconds) == (1.0, 10.0, 8.0)
    assert (Rates().now, Rates().most, Rates().lines()) == (None, None, [])


def test_only_so_many_looks_are_kept_and_topics_that_are_gone_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "KEPT", 2)
    ring = Ring()
    for number in range(5):
        ring.add(float(number), {"a": {0: number * 2}, "b": None, **({"late": {0: 7}} if number > 3 else {})})
    assert (ring.of("a").times, ring.of("a").each, ring.of("b").each) == ((3.0, 4.0), (2.0, 2.0), (None, None))
    assert ring.of("late").each == ()
    ring.add(5.0, {})
    assert (ring.kept.each, ring.of("a").each) == ({}, ())


def test_a_cluster_without_topics_has_no_rates_and_nothing_is_drawn() -> None:
    ring = Ring()
    looks: list[dict[str, Counts | None]] = [{}, {}, {"a": {0: 3}}, {"a": {0: 5}}, {}]
    for at, counts in enumerate(looks):
        ring.add(float(at), counts)
        assert isinstance(ring.of_all().lines(), list)
    assert ring.of_all() == Rates()


def test_where_one_topic_is_not_known_neither_is_the_sum_of_all() -> None:
    ring = Ring()
    looks: list[dict[str, int | None]] = [{"a": 0, "b": 0}, {"a": 5, "b": 1}, {"a": 9, "b": None}, {"a": 10, "b": 3}]
    looks += [{"a": 12, "b": 4, "new": 100}, {"a": 14, "b": 5, "new": 107}]
    for at, ends in enumerate(looks):
        ring.add(float(at), {name: None if end is None else {0: end} for name, end in ends.items()})
    assert ring.of_all() == Rates((1.0, 2.0, 3.0, 4.0, 5.0), (6.0, None, None, 3.0, 10.0))


def test_bytes_are_those_of_leaders_copies_and_not_known_when_one_is_silent() -> None:
    copies = [PartitionDescription(each, 1 + each, 0, (1, 2), (1, 2), ()) for each in (0, 1)]
    topic = TopicDescription("t", bytes(16), False, tuple(copies))
    sizes: dict[tuple[str, int, int | None], int] = {("t", 0, 1): 70, ("t", 0, 2): 60, ("t", 1, 2): 50}
    assert sizes_of(topic, sizes) == {(0, 1): 70, (1, 2): 50}
    del sizes["t", 1, 2]
    assert sizes_of(topic, sizes) is None


def test_a_drawing_has_a_gap_where_nothing_is_known() -> None:
    drawn = Rates((0.0, 1.0, 2.0, 3.0, 4.0), (0.0, 5.0, None, 10.0, 0.0)).lines()
    assert drawn == [f"0.0,{HEIGHT - 1}.0 60.0,18.0", f"180.0,1.0 {WIDTH}.0,{HEIGHT - 1}.0"]


async def test_why_there_are_no_rates_is_said(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "MOST_PARTITIONS", 1)
    monkeypatch.setattr(rates, "PERIOD_S", 0.05)
    async with Admin(broker.bootstrap) as admin, visiting(broker.bootstrap) as visitor:
        await admin.create_topic(topic_name, 2)

        async def is_said(path: str) -> bool:
            return "more than 1 partitions" in await visitor.see(path)

        for path in ("/", f"/topics/{topic_name}"):
            await until(lambda path=path: is_said(path))  # type: ignore[misc]


async def test_a_look_with_a_mistake_in_it_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "PERIOD_S", 0.0)
    looks = 0
    several = asyncio.Event()

    class Mistaken(Watch):
        async def look(self) -> None:
            nonlocal looks
            looks += 1
            if looks > 2:
                several.set()
            raise ValueError("no number")

    nobody: Any = None
    watch = Mistaken(nobody)
    running = asyncio.ensure_future(watch.run())
    await asyncio.wait({running, asyncio.ensure_future(several.wait())}, return_when=asyncio.FIRST_COMPLETED)
    assert not running.done()
    running.cancel()
    assert "ValueError: no number" in watch.of_all()[0].problem


@pytest.mark.slow
async def test_what_a_topic_gets_is_drawn(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "PERIOD_S", 0.05)
    async with Admin(broker.bootstrap) as admin, visiting(broker.bootstrap) as visitor:
        await admin.create_topic(topic_name, 2)
        watch = Watch(Facts(admin))
        async with Producer(broker.bootstrap) as producer:

            async def is_drawn() -> bool:
                await producer.send_and_wait(topic_name, b"x")
                return "<polyline" in await visitor.see(f"/topics/{topic_name}")

            await until(is_drawn)

            async def both_have_grown() -> bool:
                await producer.send_and_wait(topic_name, b"x")
                await watch.look()
                return all(rate.now is not None and rate.now > 0 for rate in watch.of(topic_name))

            await until(both_have_grown)
        overview = await visitor.see("/")
        assert "Records per second" in overview
        assert "Bytes per second" in overview

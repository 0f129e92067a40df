from typing import Any

import pytest

from kbroker.client.admin import Admin
from kbroker.client.producer import Producer
from kbroker.dev.broker_process import BrokerProcess
from kbroker.page import rates
from kbroker.page.facts import Facts
from kbroker.page.rates import HEIGHT, NOT_KNOWN, WIDTH, Rates, Ring, Watch, rates_of
from tests.kbroker.page.visiting import until, visiting


def test_a_rate_is_what_was_added_between_two_looks() -> None:
    found = rates_of([0.0, 2.0, 4.0, 6.0, 8.0], [10, 30, NOT_KNOWN, 40, 5])
    assert found.each == (10.0, None, None, None)
    assert (found.now, found.most, found.seconds) == (None, 10.0, 6.0)
    assert (Rates().now, Rates().most, Rates().lines()) == (None, None, [])


def test_only_so_many_looks_are_kept_and_topics_that_are_gone_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "KEPT", 3)
    ring = Ring()
    for number in range(5):
        ring.add(float(number), {"a": number * 2, "b": None, **({"late": 7} if number > 3 else {})})
    assert (ring.times, ring.of("a").each, ring.of("b").each) == ([2.0, 3.0, 4.0], (2.0, 2.0), (None, None))
    assert ring.of("late").each == ()
    ring.add(5.0, {})
    assert (ring.ends, ring.of("a").each) == ({}, ())


def test_a_cluster_without_topics_has_no_rates_and_nothing_is_drawn() -> None:
    ring = Ring()
    looks: list[dict[str, int | None]] = [{}, {}, {"a": 3}, {"a": 5}, {}]
    for ends in looks:
        ring.add(float(len(ring.times)), ends)
        assert isinstance(ring.of_all().lines(), list)
    assert ring.of_all() == Rates()


def test_where_one_topic_is_not_known_neither_is_the_sum_of_all() -> None:
    ring = Ring()
    looks: list[dict[str, int | None]] = [{"a": 0, "b": 0}, {"a": 5, "b": 1}, {"a": 9, "b": None}, {"a": 10, "b": 3}]
    looks += [{"a": 12, "b": 4, "new": 100}, {"a": 14, "b": 5, "new": 107}]
    for at, ends in enumerate(looks):
        ring.add(float(at), ends)
    assert ring.of_all() == Rates((1.0, 2.0, 3.0, 4.0, 5.0), (6.0, None, None, 3.0, 10.0))


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
            await watch.look()
            await producer.send_and_wait(topic_name, b"x")
            await watch.look()
        rate: Any = watch.ring.of(topic_name).now
        assert rate > 0
        assert "Records per second" in await visitor.see("/")

"""What the nemesis draws, and that a test of a healthy broker under it finds nothing."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker import Producer
from kbroker.dev.broker_process import BrokerProcess
from kbroker.verify.checker import judge_folder
from kbroker.verify.history import read_history
from kbroker.verify.nemesis import make_nemesis
from kbroker.verify.proxy.faults import Where
from kbroker.verify.proxy.nemesis import DRAWN, ProxyNemesis
from kbroker.verify.runner import Plan, run_test
from tests.fixtures.kafka import JavaBroker

TIMEOUT = 60.0


@pytest.fixture
def nemesis(broker: BrokerProcess) -> Iterator[ProxyNemesis]:
    nemesis = ProxyNemesis(seed=1)
    nemesis.start(broker.bootstrap)
    try:
        yield nemesis
    finally:
        nemesis.stop()


@pytest.mark.parametrize("name", DRAWN)
def test_a_fault_is_drawn_from_the_generator_alone(name: str) -> None:
    faults, details = DRAWN[name](random.Random(3), Where(broker=1))
    again, same = DRAWN[name](random.Random(3), Where(broker=1))
    assert details == same
    assert [str(fault.where) for fault in faults] == ["broker 1"] * len(again)
    assert len({str(DRAWN[name](random.Random(seed), Where())[1]) for seed in range(50)}) > 1 or name == "refuse"


def test_every_fault_comes_up_and_is_healed(nemesis: ProxyNemesis, topic: str) -> None:
    rng = random.Random(5)
    seen = set()
    with Producer(nemesis.proxy.bootstrap, client_id="me") as producer:
        producer.send(topic, b"before").result(TIMEOUT)
        for _ in range(40):
            fault = nemesis.inject(rng)
            assert fault is not None
            assert set(fault.details) <= {
                *("client", "broker", "direction", "seconds"),
                *("bytes-per-second", "times", "api", "link"),
            }
            seen.add(fault.name)
            nemesis.heal()
        assert producer.send(topic, b"after").result(TIMEOUT).offset == 1
    assert seen == set(DRAWN)


def test_it_is_what_the_name_proxy_means() -> None:
    assert isinstance(make_nemesis("proxy", seed=7), ProxyNemesis)


@pytest.mark.slow
def test_links_that_break_find_nothing_wrong_with_a_healthy_broker(broker: BrokerProcess, tmp_path: Path) -> None:
    assert_valid(broker.bootstrap, "queue", 3, tmp_path)


@pytest.mark.compat
@pytest.mark.parametrize("workload", ["queue", "txn", "group"])
def test_links_that_break_find_nothing_wrong_with_kafka(
    kafka_broker: JavaBroker, tmp_path: Path, workload: str
) -> None:
    assert_valid(kafka_broker.bootstrap, workload, 10, tmp_path)


def assert_valid(bootstrap: str, workload: str, seconds: float, tmp_path: Path) -> None:
    plan = Plan(
        bootstrap,
        workload,
        seconds,
        seed=11,
        nemesis="proxy",
        processes=4,
        topics=1,
        partitions=2,
        fault_seconds=0.4,
    )
    run_test(plan, tmp_path / "out", lambda _: None)
    judgement = judge_folder(tmp_path / "out")
    assert not judgement.anomalies, judgement.anomalies
    names = {event.f for event in read_history(tmp_path / "out" / "history.jsonl") if event.process == "nemesis"}
    assert names & set(DRAWN)

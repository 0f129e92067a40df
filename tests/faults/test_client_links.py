"""Links of clients are cut, reset and lose answers: what is promised to each kind of client holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kbroker import Admin
from kbroker.dev.broker_process import BrokerProcess
from kbroker.verify.checker import judge_folder
from kbroker.verify.proxy.injection import Faults
from kbroker.verify.runner import Plan, run_test

pytestmark = pytest.mark.slow
TIMEOUT = 60.0


@pytest.fixture
def faults(broker: BrokerProcess) -> Iterator[Faults]:
    with Faults(broker.bootstrap) as faults:
        yield faults


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str) -> str:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=1)
    return topic_name


def committed_values(broker: BrokerProcess, topic: str) -> list[bytes]:
    """All that a reader of committed records sees up to the last offset there is; it must get there."""
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "-", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**config, "isolation.level": "read_committed", "fetch.wait.max.ms": 20})
    end = confluent_kafka.Consumer({**config, "isolation.level": "read_uncommitted"})
    try:
        place = confluent_kafka.TopicPartition(topic, 0, 0)
        _, high_watermark = end.get_watermark_offsets(place, timeout=TIMEOUT)
        consumer.assign([place])
        values: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            for message in consumer.consume(100, timeout=0.2):
                if message.error() is None:
                    values.append(message.value() or b"")
            (position,) = consumer.position([place])
            if position.offset >= high_watermark:
                return values
        raise AssertionError(f"{topic} cannot be read to its end {high_watermark}: something lies open")
    finally:
        consumer.close()
        end.close()


def producer_through(faults: Faults, **settings: Any) -> Any:
    config = {"bootstrap.servers": faults.bootstrap, "client.id": "sufferer", "linger.ms": 0}
    return confluent_kafka.Producer({**config, "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 100, **settings})


@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "plain"])
def test_what_was_acknowledged_over_breaking_links_is_there(
    faults: Faults, broker: BrokerProcess, topic: str, is_idempotent: bool
) -> None:
    acknowledged: list[bytes] = []
    producer = producer_through(faults, **{"acks": "all", "enable.idempotence": is_idempotent})

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        acknowledged.append(message.value())

    def breaks(number: int) -> Any:
        kinds = (
            lambda: faults.lose_answer("Produce"),
            lambda: faults.reset_after(bytes=50, direction="to-broker"),
            lambda: faults.hold_produce(),
            lambda: faults.cut(direction="to-client"),
            lambda: faults.refuse(),
        )
        return kinds[number % len(kinds)]()

    for number in range(10):
        fault = breaks(number)
        producer.produce(topic, b"%d" % number * 100, partition=0, on_delivery=delivered)
        producer.poll(0)
        fault.wait(TIMEOUT)
        fault.heal()
        assert producer.flush(TIMEOUT) == 0
    faults.heal()
    sent = [b"%d" % number * 100 for number in range(10)]
    assert acknowledged == sent
    stored = committed_values(broker, topic)
    if is_idempotent:
        assert stored == sent
    else:
        assert list(dict.fromkeys(stored)) == sent
        assert len(stored) > len(sent)  # what promises no more is seen to do no more


@pytest.mark.parametrize("api", ["InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"])
def test_a_transaction_is_whole_whatever_answer_it_loses(
    faults: Faults, broker: BrokerProcess, topic: str, api: str
) -> None:
    lost = faults.lose_answer(api)
    producer = producer_through(faults, **{"transactional.id": topic})
    producer.init_transactions(TIMEOUT)
    for number in range(2):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(topic, b"%d-%d" % (number, part), partition=0)
        producer.commit_transaction(TIMEOUT)
    assert lost.happened == 1
    assert committed_values(broker, topic) == [b"%d-%d" % (n, part) for n in range(2) for part in range(3)]


def test_a_produce_that_arrives_after_its_transaction_leaves_nothing_open(
    faults: Faults, broker: BrokerProcess, topic: str
) -> None:
    producer = producer_through(faults, **{"transactional.id": topic})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    held = faults.hold_produce()
    producer.produce(topic, b"aborted", partition=0)
    held.wait(TIMEOUT)
    with faults.refuse(client_id="sufferer"):
        successor = producer_through(faults, **{"transactional.id": topic, "client.id": "successor"})
        successor.init_transactions(TIMEOUT)
        successor.begin_transaction()
        successor.produce(topic, b"committed", partition=0)
        successor.commit_transaction(TIMEOUT)
        held.heal()
        successor.begin_transaction()
        successor.produce(topic, b"afterwards", partition=0)
        successor.commit_transaction(TIMEOUT)
    assert committed_values(broker, topic) == [b"committed", b"afterwards"]


@pytest.mark.parametrize("workload", ["txn", "group"])
def test_histories_over_breaking_links_are_valid(broker: BrokerProcess, tmp_path: Path, workload: str) -> None:
    plan = Plan(
        broker.bootstrap,
        workload,
        1.5,
        seed=5,
        nemesis="proxy",
        processes=3,
        topics=1,
        partitions=2,
        fault_seconds=0.3,
        final_seconds=30,
    )
    run_test(plan, tmp_path / "out", lambda _: None)
    judgement = judge_folder(tmp_path / "out")
    assert not judgement.anomalies, judgement.anomalies

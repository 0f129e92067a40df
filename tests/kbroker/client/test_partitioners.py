"""Keys stay where they are when an application moves: our placement beside librdkafka's own."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kbroker import Admin, Producer
from kbroker.client.accumulator import Accumulator
from kbroker.client.client_config import ProducerConfig
from kbroker.client.delivery import Delivery
from kbroker.client.errors import ClientClosed
from kbroker.client.partitioners import BY_NAME, Choosing, KeyPlacement, placement_of
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.records.partitioner import partition_for_key

PARTITIONS = 7
KEYS = [b"", b"a", b"k2", "schlüssel".encode(), bytes(range(256)), *(b"key-%d" % number for number in range(200))]
FIXED = {"murmur2": [None], "consistent": [None], "fnv1a": [None]}
"""Partitioners that send records without a key to one partition; the others spread them."""


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "random"])
def test_keys_go_where_librdkafka_sends_them(broker: BrokerProcess, topic_name: str, name: str) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    keys: list[bytes | None] = [*(KEYS[1:] if name == "consistent_random" else KEYS), *FIXED.get(name, [])]
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, PARTITIONS)
    theirs: list[int] = [-1] * len(keys)

    def note(place: int) -> Any:
        def delivered(error: object, message: Any) -> None:
            assert error is None, error
            theirs[place] = message.partition()

        return delivered

    other = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "partitioner": name})
    for place, key in enumerate(keys):
        other.produce(topic_name, b"x", key, on_delivery=note(place))
    assert other.flush(30) == 0
    with Producer(broker.bootstrap, partitioner=name) as producer:
        sent = [producer.send(topic_name, b"x", key) for key in keys]
        assert [delivery.result(30).partition for delivery in sent] == theirs


@pytest.mark.parametrize("name", BY_NAME)
def test_rows_of_a_table_go_where_single_records_go(broker: BrokerProcess, topic_name: str, name: str) -> None:
    pa = pytest.importorskip("pyarrow")
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, PARTITIONS)
    keys = [b"", None, b"x", b"key-7"]
    with Producer(broker.bootstrap, partitioner=name) as producer:
        for key in keys:
            table = pa.table({"k": pa.array([key] * 50, pa.binary())})
            partitions = set(producer.send_arrow(topic_name, table, key="k").result(30).partitions)
            placement = placement_of(name)
            assert isinstance(placement, KeyPlacement)
            if (-1 if key is None else len(key)) >= placement.shortest_key:
                assert partitions == {producer.send(topic_name, None, key).result(30).partition}
            else:
                assert len(partitions) == 1, "one batch"


def test_without_a_key_to_go_by_all_partitions_are_used(broker: BrokerProcess, topic_name: str) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, 3)
    with Producer(broker.bootstrap, partitioner="random", batch_size=100) as producer:
        sent = [producer.send(topic_name, b"x" * 100, b"the same") for _ in range(100)]
        assert {delivery.result(30).partition for delivery in sent} == {0, 1, 2}


def test_javas_placement_is_the_default() -> None:
    placement = placement_of("murmur2_random")
    assert isinstance(placement, KeyPlacement)
    assert partition_for_key(b"key", 100, placement.hashing) == partition_for_key(b"key", 100)


def test_a_function_that_places_records_may_send_with_its_own_producer(broker: BrokerProcess, topic_name: str) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, 2)
    noted: list[Delivery] = []

    def note_and_choose(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        if value != b"note":
            noted.append(producer.send(topic, b"note"))
        return 0 if value == b"note" else 1

    producer = Producer(broker.bootstrap, partitioner=note_and_choose, linger_ms=0)
    sending = threading.Thread(target=lambda: noted.append(producer.send(topic_name, b"x")), daemon=True)
    sending.start()
    sending.join(30)
    assert not sending.is_alive()
    with producer:
        assert [delivery.result(30).partition for delivery in noted] == [0, 1]


def test_a_function_is_asked_once_a_record_and_only_about_those_that_are_taken() -> None:
    accumulator = Accumulator(ProducerConfig.read({"bootstrap": "a:1", "buffer_memory": 100}), lambda: None)
    asked: list[bytes | None] = []

    def choose(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        asked.append(value)
        return partitions - 1

    append = Choosing(accumulator, choose)
    assert append("t", b"1", None, None, None, ()) is None, "the topic is not known yet"
    accumulator.learn("t", 2, [0, 1])
    assert append("t", b"2" * 100, None, None, None, ()) is not None
    assert append("t", b"3", None, None, None, ()) is None, "the buffer is full"
    accumulator.close("it has failed")
    with pytest.raises(ClientClosed, match="it has failed"):
        append("t", b"4", None, None, None, ())
    assert asked == [b"2" * 100]
    assert [batch.partition for batch in accumulator.unfinished()] == [1]


@pytest.mark.parametrize(
    ("choice", "key", "said"),
    [
        (lambda *record: None, b"k", "whole number, not None"),
        (lambda *record: "1", b"k", "whole number, not '1'"),
        (lambda topic, key, value, partitions: sum(key), "k", "a key is bytes or None, not the str 'k'"),
        (lambda *record: len(record[3]), b"k", "has no len"),
    ],
)
def test_what_a_function_must_not_return_or_raises_is_the_senders_to_know(choice: Any, key: Any, said: str) -> None:
    accumulator = Accumulator(ProducerConfig.read({"bootstrap": "a:1"}), lambda: None)
    accumulator.learn("t", 2, [0, 1])
    with pytest.raises(TypeError, match=said):
        Choosing(accumulator, choice)("t", b"x", key, None, None, ())
    assert accumulator.used == 0

"""Each lie reaches a client that we did not write."""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from kbroker import Admin
from kbroker.dev.broker_process import BrokerProcess
from kbroker.verify.proxy.lies import LIES, Lie
from kbroker.verify.proxy.proxy import Proxy

TIMEOUT = 30.0
LOW = {"linger.ms": 0, "socket.timeout.ms": 20_000}
Tell = Callable[..., Lie]


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[Proxy]:
    with Proxy(broker.bootstrap) as proxy:
        yield proxy


@pytest.fixture
def tell(proxy: Proxy) -> Tell:
    def start(name: str, chance: float = 1.0) -> Lie:
        liar = LIES[name](random.Random(7), chance)
        proxy.meddle(liar)
        return liar

    return start


def write(bootstrap: str, topic: str, *values: bytes, **settings: Any) -> list[int]:
    """Write each value in a batch of its own; returns the offsets that were told."""
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **LOW, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        assert producer.flush(TIMEOUT) == 0
    return offsets


def transact(bootstrap: str, topic: str, *values: bytes, end: str) -> Any:
    """Write each value to a partition of its own in one transaction."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{end}", **LOW}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    for partition, value in enumerate(values):
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT) == 0
    if end == "abort":
        producer.abort_transaction(TIMEOUT)
    elif end == "commit":
        producer.commit_transaction(TIMEOUT)
    return producer


def read(bootstrap: str, topic: str, *, partition: int = 0, until: bytes | None, **settings: Any) -> list[Any]:
    """Read from the start until a value comes; (offset, value) of each. None: until the end of the partition."""
    config = {"bootstrap.servers": bootstrap, "group.id": "-", "enable.partition.eof": True, **settings}
    consumer = confluent_kafka.Consumer({"fetch.wait.max.ms": 20, "enable.auto.commit": False, **config})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        found: list[Any] = []
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((message.offset(), message.value()))
                if message.value() == until:
                    return found
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF and until is None:
                return found
        raise AssertionError(f"{until!r} did not come: {found}")
    finally:
        consumer.close()


def test_what_a_plain_producer_wrote_is_dropped(proxy: Proxy, tell: Tell, topic: str) -> None:
    write(proxy.bootstrap, topic, b"0")
    liar = tell("drop")
    assert write(proxy.bootstrap, topic, b"1", b"2", b"3") == [1, 2, 3]  # the first tells what the end is
    assert liar.told == 2
    proxy.meddle()
    write(proxy.bootstrap, topic, b"4")
    assert read(proxy.bootstrap, topic, until=b"4") == [(0, b"0"), (1, b"1"), (2, b"4")]


def test_what_an_idempotent_producer_wrote_is_never_served(proxy: Proxy, tell: Tell, topic: str) -> None:
    liar = tell("drop")
    settings = {"enable.idempotence": True}
    assert write(proxy.bootstrap, topic, b"0", b"1", **settings) == [0, 1]
    assert liar.told == 2
    assert read(proxy.bootstrap, topic, until=None) == []
    proxy.meddle()
    assert read(proxy.bootstrap, topic, until=b"1") == [(0, b"0"), (1, b"1")]


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_batch_is_stored_twice(proxy: Proxy, tell: Tell, topic: str, is_idempotent: bool) -> None:
    liar = tell("store-twice")
    assert write(proxy.bootstrap, topic, b"0", b"1", **{"enable.idempotence": is_idempotent}) == [0, 2]
    assert liar.told == 2
    assert [value for _, value in read(proxy.bootstrap, topic, until=None)] == [b"0", b"0", b"1", b"1"]


def test_a_producer_is_told_another_offset(proxy: Proxy, tell: Tell, topic: str) -> None:
    liar = tell("renumber")
    assert write(proxy.bootstrap, topic, b"0", b"1") == [1, 2]
    assert liar.told == 2
    assert read(proxy.bootstrap, topic, until=b"1") == [(0, b"0"), (1, b"1")]


def test_two_batches_change_places(proxy: Proxy, tell: Tell, topic: str) -> None:
    write(proxy.bootstrap, topic, b"0", b"1", b"2")
    liar = tell("swap")
    assert read(proxy.bootstrap, topic, until=b"2") == [(0, b"1"), (1, b"0"), (2, b"2")]
    assert liar.told >= 1


def test_a_partition_seems_to_end_too_early(proxy: Proxy, tell: Tell, topic: str) -> None:
    write(proxy.bootstrap, topic, b"0", b"1")
    liar = tell("answer-empty")
    assert write(proxy.bootstrap, topic, b"2", b"3") == [2, 3]
    assert liar.told == 1
    assert read(proxy.bootstrap, topic, until=None) == [(0, b"0"), (1, b"1")]
    consumer = confluent_kafka.Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": "-"})
    try:
        place = confluent_kafka.TopicPartition(topic, 0)
        assert consumer.get_watermark_offsets(place, timeout=TIMEOUT) == (0, 2)
    finally:
        consumer.close()


def test_an_aborted_record_is_read_as_committed(proxy: Proxy, tell: Tell, topic: str) -> None:
    transact(proxy.bootstrap, topic, b"aborted", end="abort")
    assert read(proxy.bootstrap, topic, until=None) == []
    liar = tell("strip-aborted")
    assert read(proxy.bootstrap, topic, until=b"aborted") == [(0, b"aborted")]
    assert liar.told >= 1


def test_a_record_is_read_before_it_is_committed(proxy: Proxy, tell: Tell, topic: str) -> None:
    producer = transact(proxy.bootstrap, topic, b"undecided", end="")
    assert read(proxy.bootstrap, topic, until=None) == []
    liar = tell("beyond-stable")
    assert read(proxy.bootstrap, topic, until=b"undecided") == [(0, b"undecided")]
    assert liar.told >= 1
    producer.abort_transaction(TIMEOUT)


def test_half_of_a_transaction_is_never_seen(proxy: Proxy, tell: Tell, topic_name: str, broker: BrokerProcess) -> None:
    topic = topic_name
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=2)
    liar = tell("commit-half")
    transact(proxy.bootstrap, topic, b"one", b"other", end="commit")
    assert liar.told == 1
    read_back = [read(proxy.bootstrap, topic, partition=partition, until=None) for partition in (0, 1)]
    assert sorted(map(len, read_back)) == [0, 1]
    proxy.meddle()
    assert [len(read(proxy.bootstrap, topic, partition=partition, until=None)) for partition in (0, 1)] == [1, 1]


def test_a_group_is_told_an_older_commit(proxy: Proxy, tell: Tell, topic: str) -> None:
    write(proxy.bootstrap, topic, b"0", b"1", b"2")
    liar = tell("stale-commits")
    settings = {"bootstrap.servers": proxy.bootstrap, "group.id": topic, "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings)
    try:
        for offset in (1, 3):
            consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, offset)], asynchronous=False)
        place = confluent_kafka.TopicPartition(topic, 0)
        assert consumer.committed([place], timeout=TIMEOUT)[0].offset == 1
        proxy.meddle()
        assert consumer.committed([place], timeout=TIMEOUT)[0].offset == 3
    finally:
        consumer.close()
    assert liar.told >= 1


def test_a_liar_without_a_chance_tells_the_truth(proxy: Proxy, topic: str) -> None:
    liars = [lie(random.Random(1), 0.0) for lie in LIES.values()]
    proxy.meddle(*liars)
    assert write(proxy.bootstrap, topic, b"0", b"1", **{"enable.idempotence": True}) == [0, 1]
    transact(proxy.bootstrap, topic, b"2", end="commit")
    transact(proxy.bootstrap, topic, b"3", end="abort")
    assert read(proxy.bootstrap, topic, until=None) == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert [liar.told for liar in liars] == [0] * len(liars)

import inspect
import os
import signal
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from kbroker import Admin, Consumer, Producer, aio
from kbroker.client.errors import ClientClosed, ConfigurationError, WokenUp
from kbroker.client.group.listener import RebalanceListener
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess


def test_all_three_clients_work_without_a_loop(bootstrap: str, topic_name: str) -> None:
    threads = threading.active_count()
    with Admin(bootstrap) as admin:
        admin.create_topic(topic_name, partitions=2)
        assert topic_name in admin.list_topics()
    outcomes = []
    with Producer(bootstrap) as producer:
        for i in range(100):
            producer.send(topic_name, b"%d" % i, key=b"k", on_delivery=lambda m, e: outcomes.append((m, e)))
        producer.flush(30)
    assert len(outcomes) == 100
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic_name])
        found = []
        for record in consumer:
            found.append(record.value)
            if len(found) == 100:
                break
        consumer.seek_to_beginning()
        assert sum(batch.num_rows for batch in consumer.batches(timeout=1.0)) == 100
    assert found == [b"%d" % i for i in range(100)]
    assert threading.active_count() == threads


def test_a_closed_client_says_so_and_closes_again() -> None:
    producer = Producer("127.0.0.1:1")
    producer.close()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send("t", b"x")


def test_a_wrong_argument_leaves_no_thread() -> None:
    threads = threading.active_count()
    with pytest.raises(ConfigurationError, match="linger_ms"):
        Producer("127.0.0.1:1", linger=3)
    assert threading.active_count() == threads


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_to_make_its_own() -> None:
    with Producer("127.0.0.1:1") as producer:
        child = os.fork()
        if child == 0:
            try:
                producer.send("t", b"x")
            except ClientClosed:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def public_methods(client: type) -> dict[str, inspect.Signature]:
    names = [name for name in dir(client) if not name.startswith("_") and callable(getattr(client, name))]
    return {name: inspect.signature(getattr(client, name)) for name in names}


@pytest.mark.parametrize(
    ("blocking", "asyncio_one", "inner"),
    [
        (Admin, aio.Admin, set()),
        (Producer, aio.Producer, {"prepare", "learn", "buffer_full_text"}),
        (Consumer, aio.Consumer, {"next_batch"}),
    ],
)
def test_both_fronts_have_the_same_methods_and_arguments(blocking: type, asyncio_one: type, inner: set[str]) -> None:
    ours = public_methods(blocking)
    for name, wanted in public_methods(asyncio_one).items():
        if name not in inner | {"close"}:
            assert name in ours, f"{blocking.__name__}.{name} is missing"
            assert shape(ours[name]) == shape(wanted), name


def shape(signature: inspect.Signature) -> list[tuple[str, object, object]]:
    return [(item.name, item.kind, item.default) for item in list(signature.parameters.values())[1:]]


def test_control_c_ends_the_waiting_and_the_client_goes_on(broker: BrokerProcess, topic_name: str) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name)
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic_name])
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(30)
        assert time.monotonic() - started < 5
        with Producer(broker.bootstrap) as producer:
            producer.send(topic_name, b"x").result(10)
        assert [record.value for record in consumer.poll(10)] == [b"x"]


def interrupt_the_next_call(consumer: Consumer) -> None:
    """At the last moment: what it was to return is there."""
    run = consumer.run

    def interrupted(coroutine: Coroutine[Any, Any, Any]) -> None:
        del consumer.run  # type: ignore[method-assign]
        run(coroutine)
        raise KeyboardInterrupt

    consumer.run = interrupted  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("reads", ["poll", "batches", "records"])
def test_what_an_interrupted_call_would_have_returned_comes_with_the_next(
    broker: BrokerProcess, topic_name: str, reads: str
) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name)
    with Producer(broker.bootstrap) as producer:
        for number in range(10):
            producer.send(topic_name, b"%d" % number)
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", group_id=topic_name) as consumer:
        consumer.subscribe([topic_name])

        def read() -> list[int]:
            if reads == "poll":
                return [record.offset for record in consumer.poll(20, 5)]
            if reads == "batches":
                offsets: list[int] = next(consumer.batches(5))["offset"].to_pylist()
                return offsets
            return [record.offset for _, record in zip(range(5), consumer, strict=False)]

        assert read() == [0, 1, 2, 3, 4]
        interrupt_the_next_call(consumer)
        with pytest.raises(KeyboardInterrupt):
            read()
        assert list(consumer.positions.values()) == [5]
        assert read() == [5, 6, 7, 8, 9]


def test_a_body_that_fails_leaves_what_it_was_given_to_others(broker: BrokerProcess, topic_name: str) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name)
    with Producer(broker.bootstrap) as producer:
        producer.send(topic_name, b"x")

    def fail() -> None:
        with Consumer(broker.bootstrap, auto_offset_reset="earliest", group_id=topic_name) as consumer:
            consumer.subscribe([topic_name])
            for record in consumer:
                raise ZeroDivisionError(record.value)

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fail()


def test_waking_up_ends_the_call_that_waits_or_the_next_one(broker: BrokerProcess, topic_name: str) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name)
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign([(topic_name, 0)])
        threading.Timer(0.2, consumer.wakeup).start()
        started = time.monotonic()
        with pytest.raises(WokenUp):
            consumer.poll(30)
        assert time.monotonic() - started < 10
        assert consumer.poll(0.1) == []
        consumer.wakeup()
        with pytest.raises(WokenUp):
            next(consumer.batches(timeout=30))
        consumer.pause((topic_name, 0))
        assert consumer.paused() == {TopicPartition(topic_name, 0)}
        consumer.resume((topic_name, 0))
        assert consumer.paused() == set()


def test_a_listener_runs_in_the_thread_that_polls_and_may_call_the_consumer(bootstrap: str, topic_name: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(topic_name, partitions=2)
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic_name, b"%d" % number, partition=number % 2)
    heard: list[tuple[str, int, bool]] = []

    class Listener(RebalanceListener):
        def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            heard.append(("assigned", len(partitions), threading.current_thread() is threading.main_thread()))
            consumer.seek((topic_name, 0), 3)

        def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            heard.append(("revoked", len(partitions), threading.current_thread() is threading.main_thread()))
            consumer.commit({(topic_name, 1): 4})

    quick = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 200, "enable_auto_commit": False}
    with Consumer(bootstrap, group_id=topic_name, **quick) as consumer:
        consumer.subscribe([topic_name], listener=Listener())
        seen = []
        for record in consumer:
            seen.append(record)
            if len(seen) == 7:
                break
        assert sorted(record.offset for record in seen if record.partition == 0) == [3, 4]
    assert heard == [("assigned", 2, True), ("revoked", 2, True)]
    with Consumer(bootstrap, group_id=topic_name) as consumer:
        committed = consumer.committed([(topic_name, 0), (topic_name, 1)])
        assert [item and item.offset for item in committed.values()] == [None, 4]


def test_what_a_listener_raises_is_raised_by_poll(bootstrap: str, topic_name: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(topic_name, partitions=1)

    class Broken(RebalanceListener):
        def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            raise ZeroDivisionError("mine")

    with Consumer(bootstrap, group_id=topic_name) as consumer:
        consumer.subscribe([topic_name], listener=Broken())
        with pytest.raises(ZeroDivisionError, match="mine"):
            consumer.poll(20)
        assert consumer.poll(0.1) == []
        assert consumer.assignment() == [(topic_name, 0)]

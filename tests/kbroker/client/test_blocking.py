import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbroker import Admin, Consumer, Producer, aio
from kbroker.client.errors import ClientClosed, ConfigurationError, WokenUp
from kbroker.client.group.listener import RebalanceListener
from kbroker.client.types import OffsetAndMetadata, TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.threads import client_threads


@pytest.mark.slow
def test_all_three_clients_work_without_a_loop(bootstrap: str, topic_name: str) -> None:
    before = client_threads()
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
        rows, deadline = 0, time.monotonic() + 30
        while rows < 100 and time.monotonic() < deadline:
            rows += sum(batch.num_rows for batch in consumer.batches(timeout=0.5))
        assert rows == 100
    assert found == [b"%d" % i for i in range(100)]
    assert client_threads() <= before


def test_a_closed_client_says_so_and_closes_again() -> None:
    producer = Producer("127.0.0.1:1")
    producer.close()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send("t", b"x")


def test_a_wrong_argument_leaves_no_thread() -> None:
    before = client_threads()
    with pytest.raises(ConfigurationError, match="linger_ms"):
        Producer("127.0.0.1:1", linger=3)
    assert client_threads() <= before


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
        interrupt_the_next_call_soon(consumer)
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(60)
        assert time.monotonic() - started < 30
        with Producer(broker.bootstrap) as producer:
            producer.send(topic_name, b"x").result(10)
        assert [record.value for record in consumer.poll(10)] == [b"x"]


def interrupt_the_next_call_soon(consumer: Consumer) -> None:
    """By a signal, not before it has begun."""
    run = consumer.run

    def interrupted(coroutine: Coroutine[Any, Any, Any]) -> Any:
        del consumer.run
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        return run(coroutine)

    consumer.run = interrupted  # type: ignore[method-assign]


def interrupt_the_next_call(consumer: Consumer) -> None:
    """At the last moment: what it was to return is there."""
    run = consumer.run

    def interrupted(coroutine: Coroutine[Any, Any, Any]) -> None:
        del consumer.run
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
            consumer.poll(60)
        assert time.monotonic() - started < 30
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


def test_a_listener_may_unsubscribe(bootstrap: str, topic_name: str) -> None:
    heard: list[str] = []

    class Leaver(RebalanceListener):
        def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            heard.append("assigned")
            consumer.unsubscribe()

        def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            heard.append("revoked")
            consumer.commit({partitions[0]: 4})

    with Admin(bootstrap) as admin:
        admin.create_topic(topic_name, partitions=1)
    consumer = Consumer(bootstrap, group_id=topic_name)
    poll = threading.Thread(target=poll_until_left, args=(consumer, [topic_name], Leaver()), daemon=True)
    poll.start()
    poll.join(20)
    assert not poll.is_alive(), "it waits for its listener, and that for it"
    assert (heard, consumer.assignment()) == (["assigned", "revoked"], [])
    assert consumer.committed([(topic_name, 0)]) == {(topic_name, 0): OffsetAndMetadata(4)}
    consumer.close()


def poll_until_left(consumer: Consumer, topics: list[str], listener: RebalanceListener) -> None:
    consumer.subscribe(topics, listener=listener)
    while consumer.subscription():
        consumer.poll(0.1)


@pytest.mark.parametrize("closes_when", ["assigned", "revoked"])
def test_a_listener_may_close_and_is_heard_to_the_end(bootstrap: str, topic_name: str, closes_when: str) -> None:
    heard: list[str] = []

    class Closer(RebalanceListener):
        def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            self.hear("assigned")

        def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            self.hear("revoked")
            consumer.commit({partitions[0]: 4})

        def hear(self, what: str) -> None:
            if what == closes_when:
                consumer.close(10)
            heard.append(what)

    with Admin(bootstrap) as admin:
        admin.create_topic(topic_name, partitions=1)
    before = client_threads()
    consumer = Consumer(bootstrap, group_id=topic_name)
    consumer.subscribe([topic_name], listener=Closer())
    started = time.monotonic()
    if closes_when == "assigned":
        with pytest.raises(ClientClosed):
            consumer.poll(20)
    else:
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.unsubscribe()
    assert time.monotonic() - started < 8
    assert client_threads() <= before
    consumer.close()
    assert heard == ["assigned", "revoked"]
    with Consumer(bootstrap, group_id=topic_name) as other:
        assert other.committed([(topic_name, 0)]) == {(topic_name, 0): OffsetAndMetadata(4)}


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


LEFT_OPEN = """
import os, sys, threading
from kbroker import Producer

options = {"linger_ms": 60_000, "compression": sys.argv[3], "batch_size": 1 << 20}
producers = [Producer(sys.argv[1], **options) for _ in range(2)]
producers[0].send(sys.argv[2], os.urandom(100_000), partition=0)
producers[0].flush()  # this one has begun to compress in threads
for number in range(20):
    for producer in producers:
        producer.send(sys.argv[2], os.urandom(20_000), partition=0)
if sys.argv[4] == "thread":
    threading.Thread(target=threading.Event().wait, args=(1,)).start()
if sys.argv[4] == "error":
    raise SystemExit(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compression", "ending", "status"), [("zstd", "plain", 0), ("gzip", "error", 3), ("none", "thread", 0)]
)
def test_records_of_a_producer_left_open_are_sent_when_the_interpreter_ends(
    broker: BrokerProcess, topic_name: str, compression: str, ending: str, status: int
) -> None:
    bootstrap = broker.bootstrap.replace("127.0.0.1", "localhost")  # a name that has to be resolved
    command = [sys.executable, "-c", LEFT_OPEN, bootstrap, topic_name, compression, ending]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        assert consumer.end_offsets([TopicPartition(topic_name, 0)]) == {(topic_name, 0): 41}


GOES_ON = """
import os, sys, threading
from kbroker import Consumer, Producer

bootstrap, topic, compression = sys.argv[1:]
options = {"linger_ms": 60_000, "compression": compression, "batch_size": 1 << 20}
used, fresh = (Producer(bootstrap, **options) for _ in range(2))  # Python 3.12 starts no threads later on
consumer = Consumer(bootstrap, auto_offset_reset="earliest")
used.send(topic, os.urandom(100_000), partition=0)
used.flush()  # this one has begun to compress in threads


def go_on():
    threading.main_thread().join()
    for producer in (used, fresh):
        for number in range(20):
            producer.send(topic, os.urandom(20_000), partition=0)
    used.flush()
    with consumer:
        consumer.subscribe([topic])
        print(len(consumer.poll(30)) > 0)


threading.Thread(target=go_on).start()
"""


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_thread_that_outlives_the_main_thread_keeps_its_clients(
    broker: BrokerProcess, topic_name: str, compression: str
) -> None:
    bootstrap = broker.bootstrap.replace("127.0.0.1", "localhost")
    command = [sys.executable, "-c", GOES_ON, bootstrap, topic_name, compression]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        assert consumer.end_offsets([TopicPartition(topic_name, 0)]) == {(topic_name, 0): 41}


FORKED = """
import multiprocessing, sys, threading, time
from kbroker import Producer


def work():
    producer = Producer(sys.argv[1], linger_ms=60_000)
    producer.send(sys.argv[2], b"x", partition=0)
    threading.Thread(target=time.sleep, args=(0.5,)).start()


if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""
SPAWNED = """
import multiprocessing, sys, threading
from kbroker import Producer


def go_on(producer, topic):
    threading.main_thread().join()
    producer.send(topic, b"x", partition=0)


def work(bootstrap, topic):
    producer = Producer(bootstrap, linger_ms=60_000)
    threading.Thread(target=go_on, args=(producer, topic)).start()


if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work, args=sys.argv[1:])
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", [FORKED, SPAWNED.replace("spawn", "fork"), SPAWNED], ids=["forked", "forked and used", "spawned"]
)
def test_what_a_process_of_multiprocessing_has_not_sent_goes_out_at_its_end_though_a_thread_goes_on(
    broker: BrokerProcess, topic_name: str, script: str, tmp_path: Path
) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, 1, 1)
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "-W", "ignore", str(tmp_path / "script.py"), broker.bootstrap, topic_name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with Consumer(broker.bootstrap) as consumer:
        assert consumer.end_offsets([TopicPartition(topic_name, 0)]) == {(topic_name, 0): 1}


@pytest.mark.slow
def test_an_interpreter_whose_broker_is_away_ends_all_the_same() -> None:
    script = "from kbroker import Producer\np = Producer('127.0.0.1:1', max_block_ms=10)\nprint('made')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "made\n", "")


def test_a_producer_nobody_holds_any_more_sends_what_it_has_and_warns(broker: BrokerProcess, topic_name: str) -> None:
    producer = Producer(broker.bootstrap, linger_ms=60_000)
    thread = producer._thread
    delivery = producer.send(topic_name, b"x")
    held = [producer]
    del producer
    with pytest.warns(ResourceWarning, match=r"a kbroker\.client\.blocking\.Producer was never closed: use `with`"):
        held.clear()
    assert delivery.result(30).offset == 0
    thread.join(30)
    assert not thread.is_alive()


def test_a_consumer_with_a_listener_can_be_collected_too(broker: BrokerProcess, topic_name: str) -> None:
    consumer = Consumer(broker.bootstrap, group_id=topic_name)
    consumer.subscribe([topic_name], listener=RebalanceListener())
    thread = consumer._thread
    held = [consumer]
    del consumer
    with pytest.warns(ResourceWarning, match="Consumer was never closed"):
        held.clear()
    thread.join(30)
    assert not thread.is_alive()


def test_a_second_thread_that_closes_a_producer_waits_for_the_flush_of_the_first(own_broker: BrokerProcess) -> None:
    producer = Producer(own_broker.bootstrap)
    producer.send("t", b"x").result(30)
    own_broker.pause()
    delivery = producer.send("t", b"y")
    threads = [threading.Thread(target=producer.close) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    own_broker.resume()
    for thread in threads:
        thread.join(30)
    assert delivery.result(0).offset == 1


def test_a_producer_whose_sender_failed_takes_no_records(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send(topic_name, b"first").result(30)
        monkeypatch.setattr(producer._client.sender, "_send_ready", lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            producer.send(topic_name, b"second").result(30)
        with pytest.raises(ClientClosed, match=r"the producer has failed .*make another one"):
            producer.send(topic_name, b"third")


def test_serializers_make_the_bytes_that_are_sent(broker: BrokerProcess, topic_name: str) -> None:
    with Producer(
        broker.bootstrap, key_serializer=str.encode, value_serializer=lambda value: b"%d" % value
    ) as producer:
        producer.send_and_wait(topic_name, 7, key="k")
        producer.send_and_wait(topic_name, None, key="k")
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic_name])
        found: list[tuple[bytes | None, bytes | None]] = []
        while len(found) < 2:
            found += [(record.key, record.value) for record in consumer.poll(10)]
    assert found == [(b"k", b"7"), (b"k", None)]

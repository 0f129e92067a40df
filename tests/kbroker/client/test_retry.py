import time
from collections.abc import Iterator

import pytest

from kbroker import Admin, Consumer, Producer
from kbroker.client.errors import ConfigurationError
from kbroker.client.retry import Retry
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.records.record import Record

LIMIT_S = 20.0


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str) -> Iterator[str]:
    names = [topic_name, f"{topic_name}.retry", f"{topic_name}.dlq"]
    with Admin(broker.bootstrap) as admin:
        for name in names:
            admin.create_topic(name, partitions=1)
        with Producer(broker.bootstrap) as producer:
            for value in (b"good", b"bad", b"better"):
                producer.send(topic_name, value, key=b"k", headers=[("mine", b"1")])
        yield topic_name
        admin.delete_topics(names)


def consumer_of(broker: BrokerProcess, topic: str) -> Consumer:
    consumer = Consumer(broker.bootstrap, group_id=topic, enable_auto_commit=False, auto_offset_reset="earliest")
    consumer.subscribe([topic, f"{topic}.retry"])
    return consumer


def committed(consumer: Consumer, *topics: str) -> list[int | None]:
    found = consumer.committed([TopicPartition(topic, 0) for topic in topics])
    return [None if item is None else item.offset for item in found.values()]


def steps_until(retry: Retry, work: object, count: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while count > 0:
        assert time.monotonic() < deadline
        count -= retry.step(work, 0.2)  # type: ignore[arg-type]


def dead(broker: BrokerProcess, topic: str) -> list[Record]:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([(f"{topic}.dlq", 0)])
        return reader.poll(10)


def test_what_fails_again_and_again_ends_with_the_dead_letters(broker: BrokerProcess, topic: str) -> None:
    tried: list[bytes] = []

    def work(record: Record) -> None:
        tried.append(record.value or b"")
        if record.value == b"bad":
            raise ValueError(f"attempt {len(tried)}")

    with consumer_of(broker, topic) as consumer, Producer(broker.bootstrap) as producer:
        retry = Retry(consumer, producer, attempts=2, pause_s=0.01, delay_s=0.0)
        steps_until(retry, work, 4)
        assert committed(consumer, topic, f"{topic}.retry") == [3, 1]
    assert tried == [b"good", b"bad", b"bad", b"better", b"bad", b"bad"]
    (record,) = dead(broker, topic)
    assert (record.key, record.value) == (b"k", b"bad")
    headers = dict(record.headers)
    assert headers.pop("error.message") == b"attempt 6"
    assert headers == {
        "mine": b"1",
        "error.topic": topic.encode(),
        "error.partition": b"0",
        "error.offset": b"1",
        "error.class": b"ValueError",
        "error.attempts": b"4",
    }


@pytest.mark.slow
def test_what_was_put_aside_waits_and_holds_up_nothing_else(broker: BrokerProcess, topic: str) -> None:
    times: dict[bytes, list[float]] = {}

    def work(record: Record) -> None:
        times.setdefault(record.value or b"", []).append(time.monotonic())
        if len(times.get(b"bad", ())) == 1 and record.value == b"bad":
            raise ValueError

    with consumer_of(broker, topic) as consumer, Producer(broker.bootstrap) as producer:
        retry = Retry(consumer, producer, attempts=1, delay_s=1.5)
        deadline = time.monotonic() + LIMIT_S
        while len(times.get(b"bad", ())) < 2 and time.monotonic() < deadline:
            retry.step(work, 0.2)
            if len(times) == 3 and consumer.paused():
                producer.send(topic, b"%d" % len(times)).result(10)
        assert committed(consumer, f"{topic}.retry") == [1]
        assert not consumer.paused()
    first, second = times[b"bad"]
    assert second - first >= 1.0
    assert b"3" in times, "the other topic went on"


@pytest.mark.slow
def test_what_waits_comes_again_after_a_rebalance(broker: BrokerProcess, topic: str) -> None:
    seen: list[bytes] = []
    with consumer_of(broker, topic) as consumer, Producer(broker.bootstrap) as producer:
        retry = Retry(consumer, producer, delay_s=60.0)
        producer.send(f"{topic}.retry", b"put aside").result(10)
        steps_until(retry, lambda record: None, 4)
        assert consumer.paused() == {TopicPartition(f"{topic}.retry", 0)}
        consumer.enforce_rebalance()
        assert retry.step(lambda record: None, LIMIT_S) == 1
        assert consumer.positions[TopicPartition(f"{topic}.retry", 0)] == 0
        retry._delay_s = 0.0
        consumer.enforce_rebalance()
        assert retry.step(lambda record: seen.append(record.value or b""), LIMIT_S) == 1
        assert committed(consumer, f"{topic}.retry") == [1]
    assert seen == [b"put aside"]


def test_what_waits_does_not_keep_what_is_before_it_from_coming_again(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with consumer_of(broker, topic) as consumer, Producer(broker.bootstrap) as producer:
        now = round(time.time() * 1000)
        producer.send(f"{topic}.retry", b"due", timestamp_ms=now - 100_000)
        producer.send(f"{topic}.retry", b"put aside", timestamp_ms=now).result(10)
        retry = Retry(consumer, producer, delay_s=60.0)
        with monkeypatch.context() as patch:
            patch.setattr(consumer, "commit", refuse)
            with pytest.raises(ConnectionError, match="no commit"):
                steps_until(retry, lambda record: None, 5)
        assert set(consumer.positions.values()) == {0}
        steps_until(retry, lambda record: None, 5)
        assert committed(consumer, topic, f"{topic}.retry") == [3, 1]


def refuse(*arguments: object) -> None:
    raise ConnectionError("no commit")


def test_what_others_write_into_the_headers_stops_nothing(broker: BrokerProcess, topic: str) -> None:
    def work(record: Record) -> None:
        if record.topic.endswith(".retry"):
            raise ValueError

    with consumer_of(broker, topic) as consumer, Producer(broker.bootstrap) as producer:
        producer.send(f"{topic}.retry", b"x", headers=[("error.attempts", b"many")]).result(10)
        steps_until(Retry(consumer, producer, attempts=1, delay_s=0.0), work, 4)
        assert committed(consumer, f"{topic}.retry") == [1]
    (record,) = dead(broker, topic)
    assert dict(record.headers)["error.attempts"] == b"1"


def test_an_interrupt_commits_what_was_done_and_the_rest_comes_again(broker: BrokerProcess, topic: str) -> None:
    seen: list[bytes] = []

    def work(record: Record) -> None:
        seen.append(record.value or b"")
        if len(seen) == 2:
            raise KeyboardInterrupt

    with consumer_of(broker, topic) as consumer, Producer(broker.bootstrap) as producer:
        retry = Retry(consumer, producer)
        with pytest.raises(KeyboardInterrupt):
            steps_until(retry, work, 3)
        assert committed(consumer, topic) == [1]
        steps_until(retry, work, 2)
    assert seen == [b"good", b"bad", b"bad", b"better"]


def test_running_ends_when_the_consumer_is_woken(broker: BrokerProcess, topic: str) -> None:
    with consumer_of(broker, topic) as consumer, Producer(broker.bootstrap) as producer:
        Retry(consumer, producer).run(lambda record: consumer.wakeup())
        assert committed(consumer, topic) == [3]


def test_consumers_that_commit_by_themselves_are_refused() -> None:
    with Producer("127.0.0.1:1") as producer:
        for arguments in (
            {},
            {"group_id": "g"},
            {"group_id": "g", "enable_auto_commit": False, "key_deserializer": str},
        ):
            with Consumer("127.0.0.1:1", **arguments) as consumer, pytest.raises(ConfigurationError):
                Retry(consumer, producer)
        with (
            Consumer("127.0.0.1:1", group_id="g", enable_auto_commit=False) as consumer,
            pytest.raises(ConfigurationError, match="attempts"),
        ):
            Retry(consumer, producer, attempts=0)

"""Producers that tasks of a worker share."""

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.records.batch import read_header, split_batches
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.write_options import WriteOptions
from tests.kbroker.client.topics import create_topic

producers = pytest.importorskip("kbroker.spark_connector.producers")


def producer_ids(broker: BrokerProcess, topic: str) -> list[int]:
    """Those of a partition's batches, in order."""
    [log_file] = (broker.log_dir / f"{topic}-0").glob("*.log")
    data = log_file.read_bytes()
    return [read_header(data, position).producer_id for position, _ in split_batches(data)]


def test_tasks_that_follow_each_other_have_one_producer_id(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    for number in range(3):
        with producers.borrowed(WriteOptions(broker.bootstrap, topic=f"topic {number} is no part of it")) as producer:
            producer.send_and_wait(topic_name, b"v")
    ids = producer_ids(broker, topic_name)
    assert ids == ids[:1] * 3
    assert ids[0] >= 0


def test_a_task_that_fails_leaves_no_producer_to_the_next(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    options, used = WriteOptions(broker.bootstrap), []

    def fail() -> None:
        with producers.borrowed(options) as producer:
            used.append(producer)
            producer.send_and_wait(topic_name, b"v")
            raise KeyError("the task's own mistake")

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(Exception, match="closed"):
        used[0].send(topic_name, b"v")
    with producers.borrowed(options) as producer:
        producer.send_and_wait(topic_name, b"v")
    assert len(set(producer_ids(broker, topic_name))) == 2


def test_a_worker_keeps_few_producers_and_lends_each_to_one_at_a_time(broker: BrokerProcess) -> None:
    several = [WriteOptions(broker.bootstrap, client={"linger.ms": str(number)}) for number in range(6)]
    seen = []
    for options in several:
        with producers.borrowed(options) as producer:
            seen.append(producer)
    assert list(producers.PRODUCERS.values()) == seen[-producers.KEPT :]
    with producers.borrowed(several[-1]) as one, producers.borrowed(several[-1]) as other:
        assert one is seen[-1]
        assert other is not one
    assert producers.PRODUCERS[next(reversed(producers.PRODUCERS))] is one, "the other one is closed"


def test_a_wrong_client_option_of_a_write_is_named() -> None:
    with (
        pytest.raises(OptionError, match="did you mean 'compression'"),
        producers.borrowed(WriteOptions("h:1", client={"compresion": "zstd"})),
    ):
        pass

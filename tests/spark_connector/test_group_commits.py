"""What a consumer group hears of a streaming query, and a coordinator that says nothing."""

import logging
import socket
import time

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.spark_connector import group_commits
from kbroker.spark_connector.group_commits import GroupCommits
from kbroker.spark_connector.read_options import read_options
from tests.kbroker.client.topics import create_topic

pytest.importorskip("pyspark")


def commits_to(bootstrap: str, group: str) -> GroupCommits:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": "t", "commitOffsetsToGroup": group}
    return GroupCommits(read_options({**given, "kafka.request.timeout.ms": "3000"}, streaming=True))


def committed(broker: BrokerProcess, group: str) -> dict[tuple[str, int], int]:
    """Return what the group has for partition 0 of the topic of its name."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        found = consumer.committed([confluent_kafka.TopicPartition(group, 0)], timeout=30)
    finally:
        consumer.close()
    return {(each.topic, each.partition): each.offset for each in found}


def test_the_newest_offsets_arrive_before_the_end(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    commits = commits_to(broker.bootstrap, topic_name)
    for offset in range(1, 50):
        commits.tell({(topic_name, 0): offset})
    commits.close()
    assert committed(broker, topic_name) == {(topic_name, 0): 49}


def test_what_was_told_has_arrived_when_a_query_has_nothing_to_read(broker: BrokerProcess, topic_name: str) -> None:
    """Spark kills the process of a query that ends: what arrives after this may never do."""
    create_topic(broker.bootstrap, topic_name, partitions=1)
    commits = commits_to(broker.bootstrap, topic_name)
    commits.tell({(topic_name, 0): 7})
    commits.settle()
    assert committed(broker, topic_name) == {(topic_name, 0): 7}
    commits.close()


@pytest.mark.slow
def test_what_the_brokers_refuse_is_logged_and_tried_again(
    broker: BrokerProcess, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    commits = commits_to(broker.bootstrap, topic_name)
    with caplog.at_level(logging.WARNING):
        for _ in range(200):
            commits.tell({("no-such-topic", 0): 1})
            if caplog.text.count("were not committed to the group") == 2:
                break
            time.sleep(0.05)
        commits.close()
    assert caplog.text.count("were not committed to the group") >= 2


def test_a_coordinator_that_does_not_answer_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_commits, "LAST_WORD_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections and never says a word
        commits = commits_to(f"127.0.0.1:{silent.getsockname()[1]}", "group")
        began = time.monotonic()
        for offset in range(3):
            commits.tell({("t", 0): offset})
        for _ in range(400):
            commits.settle()  # waits once
        with caplog.at_level(logging.WARNING):
            commits.close()
        assert time.monotonic() - began < 10, "an answer was waited for"
    assert "was not told the last offsets" in caplog.text

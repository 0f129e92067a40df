"""Transactions of Kafka's own producer, and Kafka's tools that look at them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from kbroker import Admin
from kbroker.client.types import TopicPartition
from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.java import JavaTool

pytestmark = pytest.mark.slow

TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TIMEOUT = 60.0


def rows(table: str) -> list[list[str]]:
    """The cells of a tool's table, without its head."""
    return [line.split() for line in table.splitlines() if line.strip()][1:]


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str) -> str:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, partitions=2)
    return topic_name


def test_the_producer_of_the_performance_tool_commits_many_transactions(
    java_tool: JavaTool, broker: BrokerProcess, topic: str
) -> None:
    told = java_tool(
        PRODUCER_PERFORMANCE,
        *("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", topic, "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    )
    assert "20000 records sent" in told
    with Admin(broker.bootstrap) as admin:
        keys = [(topic, 0), (topic, 1)]

        def ends(read_committed: bool) -> list[int]:
            return [each.offset for each in admin.list_offsets(keys, read_committed=read_committed).values()]

        until(lambda: ends(True) == ends(False), "the last stable offset stands still")
        assert sum(ends(False)) > 20_000  # with markers
    read = java_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "20000"),
        *("--isolation-level", "read_committed", "--timeout-ms", "20000"),
    )
    assert len(read.splitlines()) == 20_000


def test_kafkas_tool_lists_describes_and_aborts_transactions(
    java_tool: JavaTool, broker: BrokerProcess, topic: str
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=1)
    producer.flush(TIMEOUT)
    listed = {row[0]: row for row in rows(java_tool(TRANSACTIONS_COMMAND, *server, "list"))}
    producer_id, state = listed[topic][2], listed[topic][3]
    assert state == "Ongoing"
    described = rows(java_tool(TRANSACTIONS_COMMAND, *server, "describe", "--transactional-id", topic))
    assert described[0][:5] == ["1", topic, producer_id, "0", "Ongoing"]
    assert described[0][-1] == f"{topic}-1"
    of_partition = rows(
        java_tool(TRANSACTIONS_COMMAND, *server, "describe-producers", "--topic", topic, "--partition", "1")
    )
    assert of_partition[0][0] == producer_id
    java_tool(TRANSACTIONS_COMMAND, *server, "abort", "--topic", topic, "--partition", "1", "--start-offset", "0")
    with Admin(broker.bootstrap) as admin:
        key = TopicPartition(topic, 1)
        until(
            lambda: admin.list_offsets([key], read_committed=True)[key].offset == 2,
            "the transaction is still under way",
        )


def test_kafkas_tool_gives_each_transaction_an_epoch_and_takes_it_back(
    java_tool: JavaTool, make_broker: MakeBroker
) -> None:
    bootstrap = make_broker().bootstrap

    def tool(*words: str, **more: bool) -> str:
        return java_tool("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", bootstrap, *words, **more)

    assert "was upgraded to 2" in tool("upgrade", "--feature", "transaction.version=2")
    assert "SupportedMaxVersion: 2\tFinalizedVersionLevel: 2\t" in tool("describe")
    refused = tool("upgrade", "--feature", "transaction.version=3", expect_failure=True)
    assert "transaction.version has the levels 0 to 2, and not 3" in refused
    assert "was downgraded to 0" in tool("downgrade", "--feature", "transaction.version=0")

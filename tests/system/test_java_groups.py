"""Groups through Apache Kafka's own tools: their consumers, their group command, their dump of our offsets."""

import time

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.brokers import MakeBroker
from tests.fixtures.java import JavaTool

pytestmark = pytest.mark.slow

TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
END_TO_END_LATENCY = "org.apache.kafka.tools.EndToEndLatency"
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DUMP_LOG = "kafka.tools.DumpLogSegments"
LINES = "a\nb\nc\nd\n"


def consume(java_tool: JavaTool, broker: BrokerProcess, topic: str, group: str, count: int) -> str:
    return java_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "30000"),
    )


@pytest.fixture
def lines(java_tool: JavaTool, broker: BrokerProcess, topic_name: str) -> str:
    """A topic of one partition with four lines."""
    server = ("--bootstrap-server", broker.bootstrap)
    java_tool(TOPIC_COMMAND, *server, "--create", "--topic", topic_name, "--partitions", "1")
    java_tool(CONSOLE_PRODUCER, *server, "--topic", topic_name, given=LINES)
    return topic_name


def test_the_console_consumer_goes_on_where_its_group_stopped(
    java_tool: JavaTool, broker: BrokerProcess, lines: str
) -> None:
    assert consume(java_tool, broker, lines, lines, 2) == "a\nb\n"
    assert consume(java_tool, broker, lines, lines, 2) == "c\nd\n"


def test_the_group_command_lists_describes_resets_and_deletes(
    java_tool: JavaTool, broker: BrokerProcess, lines: str
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    group = (*server, "--group", lines)
    consume(java_tool, broker, lines, lines, 3)
    assert lines in java_tool(GROUP_COMMAND, *server, "--list").split()
    (row,) = (row for row in java_tool(GROUP_COMMAND, *group, "--describe").splitlines() if row.startswith(lines))
    assert row.split()[:6] == [lines, lines, "0", "3", "4", "1"]
    state = java_tool(GROUP_COMMAND, *group, "--describe", "--state")
    assert "Empty" in state
    assert f"127.0.0.1:{broker.port}  (1)" in state
    reset = ("--reset-offsets", "--to-earliest", "--topic", lines, "--execute")
    assert java_tool(GROUP_COMMAND, *group, *reset).split()[-3:] == [lines, "0", "0"]
    assert consume(java_tool, broker, lines, lines, 4) == LINES
    java_tool(GROUP_COMMAND, *group, "--delete-offsets", "--topic", lines)
    assert not [row for row in java_tool(GROUP_COMMAND, *group, "--describe").splitlines() if row.startswith(lines)]
    java_tool(GROUP_COMMAND, *server, "--delete", "--group", lines)
    assert lines not in java_tool(GROUP_COMMAND, *server, "--list").split()


def test_kafkas_dump_reads_what_we_wrote(java_tool: JavaTool, make_broker: MakeBroker, topic_name: str) -> None:
    broker = make_broker(properties={"offsets.topic.num.partitions": "1"})
    server = ("--bootstrap-server", broker.bootstrap)
    java_tool(TOPIC_COMMAND, *server, "--create", "--topic", topic_name, "--partitions", "1")
    java_tool(CONSOLE_PRODUCER, *server, "--topic", topic_name, given=LINES)
    consume(java_tool, broker, topic_name, "readers", 4)
    (log,) = (broker.log_dir / "__consumer_offsets-0").glob("*.log")
    dumped = java_tool(DUMP_LOG, "--offsets-decoder", "--files", str(log))
    assert "isvalid: false" not in dumped
    committed = f'{{"type":"1","data":{{"group":"readers","topic":"{topic_name}","partition":0}}}}'
    assert committed in dumped
    assert '"version":"3","data":{"offset":4,' in dumped
    assert '{"type":"2","data":{"group":"readers"}}' in dumped
    assert '"protocolType":"consumer","generation":1,"protocol":"range"' in dumped
    assert '"protocolType":"consumer","generation":2,"protocol":null,"leader":null' in dumped


def test_the_performance_consumer_and_the_latency_tool_run(
    java_tool: JavaTool, broker: BrokerProcess, topic_name: str
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    java_tool(TOPIC_COMMAND, *server, "--create", "--topic", topic_name, "--partitions", "2")
    java_tool(
        PRODUCER_PERFORMANCE,
        *("--topic", topic_name, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    )
    begun = time.monotonic()
    measured = java_tool(
        CONSUMER_PERFORMANCE, *server, "--topic", topic_name, "--messages", "20000", "--group", topic_name
    )
    assert time.monotonic() - begun < 90
    assert measured.splitlines()[-1].split(", ")[4] == "20000"
    latency = java_tool(END_TO_END_LATENCY, broker.bootstrap, topic_name, "200", "all", "100")
    assert "Percentiles: 50th" in latency

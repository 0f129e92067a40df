"""Apache Kafka's own command-line tools, and its Java clients inside them."""

import time
from pathlib import Path

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.java import JavaTool

pytestmark = pytest.mark.slow

TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
CONSOLE_PRODUCER = "kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OFFSET_SHELL = "org.apache.kafka.tools.GetOffsetShell"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
API_VERSIONS = "kafka.admin.BrokerApiVersionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
DUMP_LOG = "kafka.tools.DumpLogSegments"


def test_a_topic_is_created_described_altered_and_deleted(
    java_tool: JavaTool, broker: BrokerProcess, topic_name: str
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    chosen = (*server, "--topic", topic_name)
    java_tool(TOPIC_COMMAND, *chosen, "--create", "--partitions", "3", "--config", "retention.ms=86400000")
    assert topic_name in java_tool(TOPIC_COMMAND, *server, "--list").split()
    described = java_tool(TOPIC_COMMAND, *chosen, "--describe")
    assert "PartitionCount: 3" in described
    assert "retention.ms=86400000" in described
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3
    java_tool(TOPIC_COMMAND, *chosen, "--alter", "--partitions", "5")
    assert "PartitionCount: 5" in java_tool(TOPIC_COMMAND, *chosen, "--describe")
    assert "already exists" in java_tool(TOPIC_COMMAND, *chosen, "--create", expect_failure=True)
    java_tool(TOPIC_COMMAND, *chosen, "--delete")
    assert topic_name not in java_tool(TOPIC_COMMAND, *server, "--list").split()


def test_settings_of_a_topic_are_altered_and_described(
    java_tool: JavaTool, broker: BrokerProcess, topic_name: str
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    chosen = (*server, "--entity-type", "topics", "--entity-name", topic_name)
    java_tool(TOPIC_COMMAND, *server, "--create", "--topic", topic_name)
    java_tool(CONFIG_COMMAND, *chosen, "--alter", "--add-config", "max.message.bytes=12345,cleanup.policy=compact")
    deadline = time.monotonic() + 60
    described = ""
    while "max.message.bytes=12345" not in described and time.monotonic() < deadline:
        described = java_tool(CONFIG_COMMAND, *chosen, "--describe")
    assert "max.message.bytes=12345" in described
    assert "cleanup.policy=compact" in described
    refused = java_tool(CONFIG_COMMAND, *chosen, "--alter", "--add-config", "no.such.key=1", expect_failure=True)
    assert "no.such.key" in refused


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_of_the_console_producer_reach_the_console_consumer_and_the_dump(
    java_tool: JavaTool, broker: BrokerProcess, topic_name: str, codec: str
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    java_tool(TOPIC_COMMAND, *server, "--create", "--topic", topic_name, "--partitions", "1")
    lines = "".join(f"key-{number}:value {number}\n" for number in range(50))
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    java_tool(CONSOLE_PRODUCER, *server, "--topic", topic_name, *keyed, "--compression-codec", codec, given=lines)
    read = java_tool(
        CONSOLE_CONSUMER,
        *(*server, "--topic", topic_name, "--partition", "0", "--offset", "earliest", "--max-messages", "50"),
        *("--property", "print.key=true", "--property", "key.separator=:", "--timeout-ms", "30000"),
    )
    assert read == lines
    assert f"{topic_name}:0:50" in java_tool(OFFSET_SHELL, *server, "--topic", topic_name)
    assert_dump_reads(java_tool, broker.log_dir / f"{topic_name}-0", records=50)


def assert_dump_reads(java_tool: JavaTool, partition: Path, records: int) -> None:
    """Kafka's reader finds every record, and nothing wrong with the indexes."""
    (log,) = partition.glob("*.log")
    dumped = java_tool(DUMP_LOG, "--deep-iteration", "--print-data-log", "--files", str(log))
    assert dumped.count("| offset: ") == records
    assert "isvalid: false" not in dumped
    for index in (*partition.glob("*.index"), *partition.glob("*.timeindex")):
        checked = java_tool(DUMP_LOG, "--index-sanity-check", "--files", str(index))
        # An index of a small segment has no entry yet.
        assert "passed sanity check" in checked or "is empty" in checked, checked


def test_the_performance_producers_records_are_all_there(
    java_tool: JavaTool, broker: BrokerProcess, topic_name: str
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    java_tool(TOPIC_COMMAND, *server, "--create", "--topic", topic_name, "--partitions", "1")
    written = java_tool(
        PRODUCER_PERFORMANCE,
        *("--topic", topic_name, "--num-records", "20000", "--record-size", "1000", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all", "linger.ms=5"),
    )
    assert "20000 records sent" in written
    offsets = java_tool(OFFSET_SHELL, *server, "--topic", topic_name)
    assert offsets.strip() == f"{topic_name}:0:20000"
    assert_dump_reads(java_tool, broker.log_dir / f"{topic_name}-0", records=20_000)


def test_the_apis_of_the_broker_are_understood(java_tool: JavaTool, broker: BrokerProcess) -> None:
    listed = java_tool(API_VERSIONS, "--bootstrap-server", broker.bootstrap)
    assert f"127.0.0.1:{broker.port} (id: 1 " in listed
    for api in ("Produce(0)", "Fetch(1)", "ListOffsets(2)", "Metadata(3)", "ApiVersions(18)", "CreateTopics(19)"):
        (line,) = (line for line in listed.splitlines() if api in line)
        assert "UNSUPPORTED" not in line


def test_log_directories_are_described(java_tool: JavaTool, broker: BrokerProcess, topic_name: str) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    java_tool(TOPIC_COMMAND, *server, "--create", "--topic", topic_name)
    described = java_tool(LOG_DIRS, *server, "--describe", "--topic-list", topic_name)
    assert f'"partition":"{topic_name}-0"' in described


def test_records_before_an_offset_are_deleted(
    java_tool: JavaTool, broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    java_tool(TOPIC_COMMAND, *server, "--create", "--topic", topic_name, "--partitions", "1")
    java_tool(CONSOLE_PRODUCER, *server, "--topic", topic_name, given="a\nb\nc\nd\n")
    wanted = tmp_path / "offsets.json"
    wanted.write_text(f'{{"version": 1, "partitions": [{{"topic": "{topic_name}", "partition": 0, "offset": 3}}]}}')
    deleted = java_tool(DELETE_RECORDS, *server, "--offset-json-file", str(wanted))
    assert f"partition: {topic_name}-0\tlow_watermark: 3" in deleted
    earliest = java_tool(OFFSET_SHELL, *server, "--topic", topic_name, "--time", "-2")
    assert earliest.strip() == f"{topic_name}:0:3"

"""One data directory, compacted by Apache Kafka 3.9.2 and by us: the same batches stay, and Kafka goes on with ours."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from kbroker import Admin, Consumer
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.records.batch import BatchHeader, read_header, split_batches
from kbroker.protocol.records.record import Record, decode_batch
from kbroker.segment.cleaner import LogCleaner
from kbroker.segment.log_config import LogConfig
from kbroker.segment.log_manager import LogManager
from tests.fixtures.java import JavaTool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
confluent_kafka = pytest.importorskip("confluent_kafka")

TIMEOUT = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
UNTIL_ASKED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
UNHURRIED = {"linger.ms": 1000}
SMALL = {"segment.bytes": "15000", "index.interval.bytes": "500"}
T = TypeVar("T")
Visible = list[tuple[int, bytes | None, bytes | None]]
Batch = tuple[BatchHeader, list[Record], bytes]


def write(bootstrap: str) -> None:
    """Values, tombstones and transactions of both endings, in every codec and from several producers."""
    for round_number in range(3):
        for codec in CODECS:
            # Full batches: how they and the segments are cut does not depend on how soon anything runs.
            settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "batch.num.messages": 7, **UNHURRIED}
            plain = confluent_kafka.Producer({**settings, "enable.idempotence": round_number > 0})
            for number in range(200):
                value = None if number % 11 == 0 else b"%s-%d-%d" % (codec.encode(), round_number, number)
                plain.produce("table", value, key=b"k%d" % (number % (40 + round_number)), headers=[("h", b"1")])
            assert plain.flush(TIMEOUT) == 0
        bound = confluent_kafka.Producer({**settings, "transactional.id": f"t{round_number}"})
        bound.init_transactions(TIMEOUT)
        for transaction in range(8):
            bound.begin_transaction()
            for number in range(10):
                key = b"k%d" % (number * 3 + transaction)
                bound.produce("table", b"transaction %d" % transaction, key=key)
            if transaction % 3:
                bound.commit_transaction(TIMEOUT)
            else:
                assert bound.flush(TIMEOUT) == 0
                bound.abort_transaction(TIMEOUT)


def batches(folder: Path) -> list[Batch]:
    """All batches of a partition, with their records."""
    found = []
    for file in sorted(folder.glob("*.log")):
        data = file.read_bytes()
        for position, size in split_batches(data):
            header = read_header(data, position)
            found.append((header, decode_batch(data, position, size), data[position : position + size]))
    return found


def compact(data: Path) -> None:
    """Let our cleaner do its work on the topic's log."""
    manager = LogManager([data])
    manager.open(1, manager.stored_cluster_id() or "")
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=15_000, index_interval_bytes=500)
    manager.load({"table": config})
    log = manager.logs["table", 0]
    log.update_high_watermark(log.log_end_offset)
    assert LogCleaner(manager).clean_dirtiest()
    manager.shutdown()


def checkpoint(data: Path) -> str:
    file = data / "cleaner-offset-checkpoint"
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line for line in lines if line.startswith("table 0 ")), "table 0 0")


def let_kafka_compact(bootstrap: str, data: Path) -> None:
    with Admin(bootstrap) as admin:
        once_it_knows_the_topic(lambda: admin.alter_configs("topic", "table", {"min.cleanable.dirty.ratio": "0.01"}))
    end = time.monotonic() + 60
    while checkpoint(data) == "table 0 0":
        assert time.monotonic() < end, "Kafka did not compact"
        time.sleep(0.2)


def fields(header: BatchHeader) -> tuple[object, ...]:
    """What must be equal in both: all but the delete horizon, which depends on when."""
    base_timestamp = None if header.has_delete_horizon else header.base_timestamp
    return (
        *(header.base_offset, header.last_offset, header.count, header.attributes, base_timestamp),
        *(header.max_timestamp, header.partition_leader_epoch),
        *(header.producer_id, header.producer_epoch, header.base_sequence),
    )


def transactions_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.txnindex")))


def test_the_same_stays_and_kafka_goes_on_with_ours(
    kafka_in_turn: Callable[[str], str], java_tool: JavaTool, tmp_path: Path
) -> None:
    data, ours = tmp_path / "data", tmp_path / "ours"
    bootstrap = kafka_in_turn("start")
    with Admin(bootstrap) as admin:
        admin.create_topic("table", 1, 1, {**UNTIL_ASKED, **SMALL})
    write(bootstrap)
    kafka_in_turn("stop")
    written = batches(data / "table-0")
    shutil.copytree(data, ours)
    compact(ours)
    assert checkpoint(data) == "table 0 0"
    let_kafka_compact(kafka_in_turn("start"), data)
    kafka_in_turn("stop")
    assert checkpoint(ours) == checkpoint(data)
    by_kafka, by_us = batches(data / "table-0"), batches(ours / "table-0")
    assert [fields(header) for header, _, _ in by_us] == [fields(header) for header, _, _ in by_kafka]
    assert [records for _, records, _ in by_us] == [records for _, records, _ in by_kafka]
    equal = [
        mine == theirs
        for (header, _, mine), (_, _, theirs) in zip(by_us, by_kafka, strict=True)
        if not header.has_delete_horizon and header.compression == 0
    ]
    assert all(equal)
    assert len(equal) > 10
    assert sum(header.has_delete_horizon for header, _, _ in by_us) > 2
    assert len(by_us) < len(written) / 2
    assert transactions_of(ours / "table-0") == transactions_of(data / "table-0") != b""
    assert [f.name for f in sorted((ours / "table-0").glob("*.log"))] == [
        f.name for f in sorted((data / "table-0").glob("*.log"))
    ]
    check_with_kafkas_tools(ours / "table-0", java_tool, len(by_us))
    expected = visible(kafka_in_turn("start"))
    kafka_in_turn("stop")
    shutil.rmtree(data)
    shutil.copytree(ours, data)
    assert visible(kafka_in_turn("start")) == expected


def check_with_kafkas_tools(folder: Path, java_tool: JavaTool, count: int) -> None:
    logs = sorted(folder.glob("*.log"))
    names = ",".join(str(file) for file in logs)
    dumped = java_tool("kafka.tools.DumpLogSegments", "--files", names, "--deep-iteration")
    assert dumped.count("baseOffset: ") == count
    assert "isvalid: false" not in dumped
    assert "Found" not in dumped
    for suffix in ("index", "timeindex"):
        names = ",".join(str(file.with_suffix(f".{suffix}")) for file in logs[:-1])
        checked = java_tool("kafka.tools.DumpLogSegments", "--files", names, "--index-sanity-check")
        passed = checked.count("passed sanity check")
        assert passed + checked.count("is empty") == len(logs) - 1, checked
        assert passed > 0
        assert "Found" not in java_tool("kafka.tools.DumpLogSegments", "--files", names, "--verify-index-only")


def once_it_knows_the_topic(call: Callable[[], T]) -> T:
    """Call, and again while Kafka, which has just started, was not told of its topics."""
    end = time.monotonic() + 60
    while True:
        try:
            return call()
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or time.monotonic() > end:
                raise
        time.sleep(0.2)


def visible(bootstrap: str) -> Visible:
    """What a reader of committed records sees."""
    return once_it_knows_the_topic(lambda: read(bootstrap))


def read(bootstrap: str) -> Visible:
    partition = TopicPartition("table", 0)
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        found: Visible = []
        while consumer.position(partition) < end:
            found += [(record.offset, record.key, record.value) for record in consumer.poll(1.0)]
        return found

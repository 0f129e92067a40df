"""A broker killed in the middle of appends, again and again: nothing acknowledged is lost, nothing torn is served.

The page cache outlives a process, so a killed broker rarely leaves a torn tail by itself; the test adds one after each
kill, and damages or takes away indexes. $KBROKER_KILLS says how often it is killed (`make soak`: 50).
"""

import contextlib
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.records.batch import HEADER, split_batches, verify_crc
from tests.fixtures.brokers import MakeBroker, kill_and_expire
from tests.fixtures.java import JavaTool
from tests.kbroker.cli.commands import succeed
from tests.system.test_java_tools import assert_dump_reads
from tests.system.wire import Peer, create_topic, one_batch, produce, read_all
from tests.system.writers import ConfluentWriter, OurWriter, PlainWriter, Writer, value_of

KILLS = int(os.environ.get("KBROKER_KILLS", "12"))
PARTITIONS = 4
TORN_EVERY = 2
PROPERTIES = {
    "log.flush.interval.messages": "1",
    "log.segment.bytes": "200000",
    "log.index.interval.bytes": "1000",
}

pytestmark = pytest.mark.slow


def active_file(broker: BrokerProcess, topic: str, partition: int, suffix: str = ".log") -> Path:
    return max((broker.log_dir / f"{topic}-{partition}").glob(f"*{suffix}"))


def tear(broker: BrokerProcess, topic: str, rng: random.Random) -> dict[int, int]:
    """Leave what a crash of the machine may leave: partition -> end offset before the torn batch.

    Behind the last batch of one partition lies the beginning of another; a batch whose bytes did not all arrive lies at
    the end of the next; the last two have no indexes, or damaged ones.
    """
    ends = {}
    for partition in (0, 1):
        file = active_file(broker, topic, partition)
        data = file.read_bytes()
        batches = split_batches(data)
        end = sum(size for _, size in batches)
        assert all(verify_crc(data, position, size) for position, size in batches)
        base = int(file.stem)
        if batches:
            fields = HEADER.unpack_from(data, batches[-1][0])
            base = fields[0] + fields[6] + 1
        batch = one_batch(b"torn " * 100)
        batch[:8] = base.to_bytes(8, "big")
        if partition == 0:
            torn = bytes(batch[: rng.randrange(1, len(batch))])
        else:
            torn = bytes(batch[:200]) + bytes(len(batch) - 200)
        file.write_bytes(data[:end] + torn)
        ends[partition] = base
    for suffix in (".index", ".timeindex"):
        for index in (broker.log_dir / f"{topic}-2").glob(f"*{suffix}"):
            index.unlink()
        for index in (broker.log_dir / f"{topic}-3").glob(f"*{suffix}"):
            index.write_bytes(rng.randbytes(index.stat().st_size))
    return ends


def wait_for_progress(writers: Sequence[Writer], timeout: float = 60) -> None:
    """Return once every writer has had something acknowledged since the call."""
    before = [len(writer.acknowledged) for writer in writers]
    deadline = time.monotonic() + timeout
    while any(len(w.acknowledged) <= count for w, count in zip(writers, before, strict=True)):
        assert time.monotonic() < deadline, [(w.name, len(w.acknowledged), w.errors) for w in writers]
        time.sleep(0.01)


def check_acknowledged(writers: Sequence[Writer], stored: dict[int, list[bytes]]) -> None:
    for writer in writers:
        for number, (partition, offset) in list(writer.acknowledged.items()):
            assert stored[partition][offset] == value_of(writer.name, number), (writer.name, number, partition, offset)


def check_numbers(writer: Writer, stored: dict[int, list[bytes]]) -> None:
    """Nothing twice; from an idempotent producer everything, in order."""
    for partition, values in stored.items():
        prefix = f"{writer.name}-".encode()
        numbers = [int(value[len(prefix) :].split(b"-")[0]) for value in values if value.startswith(prefix)]
        assert len(numbers) == len(set(numbers)), f"{writer.name} twice in partition {partition}"
        assert numbers == sorted(numbers), f"{writer.name} out of order in partition {partition}"
        if writer.is_idempotent:
            assert numbers == list(range(partition, writer.sent, PARTITIONS)), (writer.name, partition)


@pytest.mark.timeout(90 + 8 * KILLS)
def test_nothing_acknowledged_is_lost_and_nothing_torn_is_served_however_often_the_broker_is_killed(
    make_broker: MakeBroker, topic_name: str
) -> None:
    rng = random.Random(13)
    broker = make_broker(properties=PROPERTIES)
    create_topic(broker, topic_name, PARTITIONS)
    stored: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(kind(broker, topic_name, PARTITIONS))
            for kind in (OurWriter, ConfluentWriter, PlainWriter)
        ]
        for kill in range(KILLS):
            wait_for_progress(writers)
            time.sleep(rng.uniform(0.0, 0.3))
            kill_and_expire(broker)
            told = [dict(writer.acknowledged) for writer in writers]
            ends = tear(broker, topic_name, rng) if kill % TORN_EVERY == 0 else {}
            broker.start().wait_until_ready()
            for partition, values in stored.items():
                values += read_all(broker, topic_name, partition, len(values))
            for writer, known in zip(writers, told, strict=True):
                for number, (partition, offset) in known.items():
                    assert stored[partition][offset] == value_of(writer.name, number)
            log = broker.log_tail(1000)
            assert "Traceback" not in log
            assert all(f"{topic_name}-{partition}/" in log and "cut " in log for partition in ends), log
        wait_for_progress(writers)
        for writer in writers:
            writer.finish(90)
    for partition, values in stored.items():
        values += read_all(broker, topic_name, partition, len(values))
        assert not [value for value in values if value.startswith(b"torn")]
    check_acknowledged(writers, stored)
    for writer in writers:
        assert not writer.errors
        check_numbers(writer, stored)
    assert broker.stop() == 0
    succeed("log", "verify", str(broker.log_dir))


def test_a_log_that_was_torn_and_recovered_is_clean_for_kafkas_own_reader(
    make_broker: MakeBroker, java_tool: JavaTool, topic_name: str
) -> None:
    broker = make_broker(properties={**PROPERTIES, "log.segment.bytes": "10000000"})
    create_topic(broker, topic_name, PARTITIONS)
    with Peer(broker) as peer:
        for number in range(400):
            assert not produce(peer, topic_name, one_batch(b"%d" % number + bytes(200)), number % 4).error_code
    kill_and_expire(broker)
    tear(broker, topic_name, random.Random(1))
    broker.start().wait_until_ready()
    with Peer(broker) as peer:
        for partition in range(PARTITIONS):
            assert produce(peer, topic_name, one_batch(b"next"), partition).base_offset == 100
    assert broker.stop() == 0
    for partition in range(PARTITIONS):
        assert_dump_reads(java_tool, broker.log_dir / f"{topic_name}-{partition}", records=101)

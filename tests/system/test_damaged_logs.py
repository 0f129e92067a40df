"""Bits that flip on the disk of a broker: never served as data, named with their place, and others are served on."""

import os
import random
import time
from pathlib import Path

import pytest

from kbroker import Consumer, TopicPartition
from kbroker.client.errors import CorruptMessageError
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.batch import split_batches, verify_crc
from tests.fixtures.brokers import MakeBroker, kill_and_expire
from tests.system.wire import Peer, bystander, create_topic, fetch, one_batch, produce

pytestmark = pytest.mark.slow

BATCHES = 40
BATCH_REGIONS = {
    "base offset": 7,
    "length": 11,
    "magic": 16,
    "crc": 17,
    "attributes": 22,
    "last offset delta": 26,
    "count": 60,
    "a record": 75,
    "the last byte": -1,
}
PROPERTIES = {"log.index.interval.bytes": "1000"}


def fill(broker: BrokerProcess, topic: str) -> None:
    with Peer(broker) as peer:
        for partition in range(2):
            for number in range(BATCHES):
                answer = produce(peer, topic, one_batch(b"%06d" % number * 50), partition)
                assert answer.base_offset == number


def damage(file: Path, batch: int, place: int, is_told: bool = False) -> int:
    """Flip a bit in place and return the batch's position.

    A disk does it without a change of the file's time; `is_told`: somebody wrote to the file, and its time says so.
    """
    before = file.stat()
    if is_told:
        time.sleep(0.05)  # some kernels count times in steps of 10 ms
    data = file.read_bytes()
    position, size = split_batches(data)[batch]
    at = position + (place if place >= 0 else size + place)
    with file.open("r+b", buffering=0) as changed:
        os.pwrite(changed.fileno(), bytes([data[at] ^ 0x04]), at)
    if not is_told:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    return position


def read_until_the_damage(broker: BrokerProcess, topic: str, damaged: int) -> tuple[ErrorCode, int]:
    """Read as a consumer does; every batch that is served must be good. Where it stops: (error, next offset)."""
    offset = 0
    with Peer(broker) as peer:
        for _ in range(5 * BATCHES):
            answer = fetch(peer, topic, offset, max_bytes=3000)
            data = bytes(answer.records or b"")
            batches = split_batches(data)
            for position, size in batches:
                assert verify_crc(data, position, size)
                base = int.from_bytes(data[position : position + 8], "big")
                assert base <= offset
                assert base != damaged
                assert b"%06d" % base * 50 in data[position : position + size]
                offset = max(offset, base + 1)
            if answer.error_code or not batches:
                return answer.error_code, offset
    raise AssertionError("it neither ends nor fails")


def lines_about(broker: BrokerProcess, topic: str) -> list[str]:
    return [line for line in broker.log_tail(1000).splitlines() if f"{topic}-0/" in line]


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "stopped and started"])
@pytest.mark.parametrize("region", ["base offset", "crc", "count", "a record"])
def test_a_bit_that_flips_on_disk_is_not_served_and_its_place_is_named(
    make_broker: MakeBroker, topic_name: str, region: str, restarted: bool
) -> None:
    broker = make_broker(properties=PROPERTIES)
    create_topic(broker, topic_name, 2)
    fill(broker, topic_name)
    if restarted:
        assert broker.stop() == 0
    file = broker.log_dir / f"{topic_name}-0" / f"{0:020d}.log"
    position = damage(file, 10, BATCH_REGIONS[region], is_told=not restarted)
    if restarted:
        broker.start().wait_until_ready()
    with bystander(broker, topic_name, 1):
        error, stopped_at = read_until_the_damage(broker, topic_name, 10)
    assert error is ErrorCode.CORRUPT_MESSAGE
    assert stopped_at == 10
    (line, *_) = [line for line in lines_about(broker, topic_name) if f"position {position}" in line]
    assert f"{topic_name}-0/{file.name}" in line
    with Peer(broker) as peer:
        assert not fetch(peer, topic_name, 20).error_code
        assert produce(peer, topic_name, one_batch(b"next")).base_offset == BATCHES
    assert "Traceback" not in broker.log_tail(1000)


def test_a_bit_that_rots_unseen_under_a_running_broker_reaches_no_consumer_as_data_and_a_start_names_its_place(
    make_broker: MakeBroker, topic_name: str
) -> None:
    """What was checked once is sent from the page cache: who reads it checks it, too, and says which offset is bad."""
    broker = make_broker(properties=PROPERTIES)
    create_topic(broker, topic_name, 2)
    fill(broker, topic_name)
    assert read_until_the_damage(broker, topic_name, -1) == (ErrorCode.NONE, BATCHES)
    file = broker.log_dir / f"{topic_name}-0" / f"{0:020d}.log"
    position = damage(file, 10, BATCH_REGIONS["a record"])
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic_name, 0)])
        consumer.seek(TopicPartition(topic_name, 0), 0)
        seen: list[int] = []

        def read_on() -> None:
            while True:
                seen.extend(record.offset for record in consumer.poll(timeout=5))

        with pytest.raises(CorruptMessageError, match=rf"{topic_name}-0\b.*offset 10 cannot be read"):
            read_on()
        assert seen == list(range(10))
    assert broker.stop() == 0
    broker.start().wait_until_ready()
    assert read_until_the_damage(broker, topic_name, 10) == (ErrorCode.CORRUPT_MESSAGE, 10)
    assert any(f"{file.name}, position {position}" in line for line in lines_about(broker, topic_name))


def test_no_flipped_bit_is_ever_served_wherever_it_is(make_broker: MakeBroker, topic_name: str) -> None:
    """One broker, a file damaged anew (and repaired) for each region and some random places."""
    broker = make_broker(properties=PROPERTIES)
    create_topic(broker, topic_name, 2)
    fill(broker, topic_name)
    file = broker.log_dir / f"{topic_name}-0" / f"{0:020d}.log"
    good = file.read_bytes()
    rng = random.Random(3)
    places = [*BATCH_REGIONS.values(), *(rng.randrange(61, 300) for _ in range(20))]
    with bystander(broker, topic_name, 1):
        for place in places:
            batch = rng.randrange(BATCHES)
            damage(file, batch, place, is_told=True)
            error, stopped_at = read_until_the_damage(broker, topic_name, batch)
            assert error is ErrorCode.CORRUPT_MESSAGE, (place, error)
            assert stopped_at == batch, place
            with file.open("r+b", buffering=0) as repaired:
                os.pwrite(repaired.fileno(), good, 0)
            assert read_until_the_damage(broker, topic_name, -1) == (ErrorCode.NONE, BATCHES)


def test_a_bit_that_flipped_before_a_crash_ends_the_log_there_and_says_what_was_cut(
    make_broker: MakeBroker, topic_name: str
) -> None:
    broker = make_broker(properties=PROPERTIES)
    create_topic(broker, topic_name, 2)
    fill(broker, topic_name)
    kill_and_expire(broker)
    position = damage(broker.log_dir / f"{topic_name}-0" / f"{0:020d}.log", 30, 75)
    broker.start().wait_until_ready()
    assert read_until_the_damage(broker, topic_name, 30) == (ErrorCode.NONE, 30)
    (line,) = lines_about(broker, topic_name)
    assert f"position {position}" in line
    assert "does not match its checksum" in line
    with Peer(broker) as peer:
        assert fetch(peer, topic_name, 0, 1).high_watermark == BATCHES

"""Disks that are full, read-only, or no disks at all: what cannot be used is named in one line, the rest serves on.

A small file system of its own for one broker is a tmpfs in a mount namespace, which needs root; a limit on the size
of files needs nothing.
"""

import time
from pathlib import Path

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.log_dirs import DescribeLogDirsRequest
from kbroker.protocol.records.batch import split_batches
from kbroker.protocol.records.record import decode_batch
from tests.faults.small_disk import may_mount
from tests.fixtures.brokers import MakeBroker, kill_and_expire
from tests.system.wire import Peer, bystander, create_topic, fetch, leaders, one_batch, produce

pytestmark = pytest.mark.slow


def mounting(folder: Path, options: str) -> list[str]:
    """Give the broker a file system of its own at the folder; nobody else sees it."""
    if not may_mount():
        pytest.skip("mounting in a namespace of one's own is not permitted here")
    folder.mkdir(parents=True)
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o {options} tmpfs {folder} && exec "$0" "$@"']


def end(broker: BrokerProcess, timeout: float = 30) -> list[str]:
    """Wait until the broker has ended by itself with status 1; what it wrote."""
    assert broker.wait(timeout) == 1, broker.log_tail()
    lines = broker.log_tail(1000).splitlines()
    assert not [line for line in lines if "Traceback" in line]
    return lines


def fill(broker: BrokerProcess, topic: str, partition: int, most: int = 400) -> tuple[int, ErrorCode]:
    """Append 64 KB batches until one is refused; how many were taken, and the refusal."""
    with Peer(broker, 30) as peer:
        for count in range(most):
            answer = produce(peer, topic, one_batch(b"%06d" % count + bytes(64 << 10)), partition)
            if answer.error_code:
                return count, answer.error_code
            assert answer.base_offset == count
    raise AssertionError("the disk never was full")


def numbers(broker: BrokerProcess, topic: str, partition: int = 0) -> list[int]:
    """The numbers that begin the values of all records; their offsets must be contiguous."""
    found: list[int] = []
    with Peer(broker, 30) as peer:
        while True:
            answer = fetch(peer, topic, len(found), partition)
            assert answer.error_code is ErrorCode.NONE, answer
            data = bytes(answer.records or b"")
            batches = split_batches(data)
            if not batches:
                assert answer.high_watermark == len(found)
                return found
            for position, size in batches:
                for record in decode_batch(data, position, size):
                    if record.offset >= len(found):
                        assert record.offset == len(found)
                        found.append(int(bytes(record.value or b"")[:6]))


def partitions_by_directory(broker: BrokerProcess, topic: str) -> dict[str, list[int]]:
    with Peer(broker) as peer:
        answer = peer.ask(DescribeLogDirsRequest(topics=None), 4)
    return {
        each.log_dir: [p.partition_index for t in each.topics if t.name == topic for p in t.partitions]
        for each in answer.results
    }


# -- at the start ---------------------------------------------------------------------------------------------------


def test_a_file_where_a_log_directory_should_be_is_named(make_broker: MakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    lines = end(make_broker(properties={"log.dirs": str(file)}, wait=False))
    assert str(file) in lines[-1]
    assert "log.dirs" in lines[-1]
    assert file.read_text() == "not a folder"


def test_a_read_only_log_directory_is_named(make_broker: MakeBroker, tmp_path: Path) -> None:
    folder = tmp_path / "read-only"
    launcher = mounting(folder, "ro")
    lines = end(make_broker(properties={"log.dirs": str(folder)}, launcher=launcher, wait=False))
    assert str(folder) in lines[-1]
    assert "ead-only" in lines[-1]
    assert "log.dirs" in lines[-1]


@pytest.mark.parametrize("size", ["4k", "8k"])
def test_a_log_directory_without_any_room_is_named(make_broker: MakeBroker, tmp_path: Path, size: str) -> None:
    folder = tmp_path / "full"
    launcher = mounting(folder, f"size={size},nr_inodes=2")
    lines = end(make_broker(properties={"log.dirs": str(folder)}, launcher=launcher, wait=False))
    assert str(folder) in lines[-1]
    assert "No space left" in lines[-1]


def test_one_unusable_directory_of_two_does_not_keep_the_broker_from_starting(
    make_broker: MakeBroker, tmp_path: Path, topic_name: str
) -> None:
    bad, good = tmp_path / "bad", tmp_path / "good"
    bad.write_text("not a folder")
    broker = make_broker(properties={"log.dirs": f"{bad},{good}"})
    create_topic(broker, topic_name, 3)
    with Peer(broker) as peer:
        assert all(not produce(peer, topic_name, one_batch(), partition).error_code for partition in range(3))
    assert len([line for line in broker.log_tail(1000).splitlines() if f"{bad} is offline" in line]) == 1
    assert broker.stop() == 0


# -- while it runs --------------------------------------------------------------------------------------------------


def test_a_full_disk_takes_its_own_partitions_and_no_others(
    make_broker: MakeBroker, tmp_path: Path, topic_name: str
) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    launcher = mounting(small, "size=3m")
    broker = make_broker(properties={"log.dirs": f"{small},{large}"}, launcher=launcher)
    create_topic(broker, topic_name, 6)
    places = partitions_by_directory(broker, topic_name)
    doomed, lucky = places[str(small)], places[str(large)]
    assert len(doomed) == len(lucky) == 3
    with bystander(broker, topic_name, lucky[0]):
        taken, code = fill(broker, topic_name, doomed[0])
        assert taken > 5
        assert code is ErrorCode.KAFKA_STORAGE_ERROR
        with Peer(broker) as peer:
            for partition in doomed:
                answer = produce(peer, topic_name, one_batch(), partition)
                assert answer.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            for partition in lucky:
                assert not produce(peer, topic_name, one_batch(), partition).error_code
        wait_until_told(broker, topic_name, doomed)
    lines = broker.log_tail(10_000).splitlines()
    assert not [line for line in lines if "Traceback" in line]
    told = [line for line in lines if str(small) in line and "No space left" in line]
    assert len([line for line in told if "offline" in line]) == 1
    assert broker.stop() == 0


def wait_until_told(broker: BrokerProcess, topic: str, offline: list[int]) -> None:
    """Metadata say which partitions have no leader any more."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = leaders(broker, topic)
        if all((leader == -1) == (partition in offline) for partition, (_, leader) in found.items()):
            return
        time.sleep(0.1)
    raise AssertionError(found)


def test_the_only_disk_being_full_ends_the_broker_and_with_more_room_everything_acknowledged_is_there(
    make_broker: MakeBroker, topic_name: str
) -> None:
    broker = make_broker(launcher=["prlimit", "--fsize=2000000"])
    create_topic(broker, topic_name)
    taken, code = fill(broker, topic_name, 0)
    assert code is ErrorCode.KAFKA_STORAGE_ERROR
    lines = end(broker)
    assert [line for line in lines if str(broker.log_dir) in line and "File too large" in line]
    assert not (broker.log_dir / ".kafka_cleanshutdown").exists()
    broker.launcher = []
    kill_and_expire(broker)  # it has ended, and its session has not
    broker.start().wait_until_ready()
    assert numbers(broker, topic_name) == list(range(taken))
    with Peer(broker) as peer:
        assert produce(peer, topic_name, one_batch(b"%06d" % taken)).base_offset == taken

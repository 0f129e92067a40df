"""A full disk and a data directory that goes away, on a follower and on a leader, under load."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.segment.checkpoints import HIGH_WATERMARKS, read_offsets
from kbroker.segment.files import Files
from tests.faults.cluster import BROKERS, TIMEOUT, FaultCluster, until
from tests.faults.conftest import MakeFaultCluster
from tests.faults.load import Load
from tests.faults.small_disk import SmallDisk, may_mount
from tests.faults.test_kills import victim
from tests.system.wire import Peer, fetch, one_batch, produce, read_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOM = 6_000_000


@pytest.fixture
def small_disks(tmp_path: Path) -> Iterator[tuple[SmallDisk, SmallDisk]]:
    """Two disks on which soon nothing finds room that a broker writes: logs, indexes, checkpoints."""
    if not may_mount():
        pytest.skip("mounting in a namespace of one's own is not permitted here")
    with SmallDisk(tmp_path / "a", str(ROOM)) as one, SmallDisk(tmp_path / "b", str(ROOM), one) as other:
        yield one, other


def fill(cluster: FaultCluster, topic: str, until_refused: bool) -> int:
    """Append more than fits; how many were acknowledged until one was refused, or all of them."""
    count = ROOM // (64 << 10) + 5
    with Peer(cluster.leader(topic), TIMEOUT) as peer:
        for number in range(count):
            try:
                answer = produce(peer, topic, one_batch(b"%06d" % number + bytes(64 << 10)))
            except ConnectionError:  # a broker whose last disk is full may be gone before it has answered
                assert until_refused
                return number
            if until_refused and answer.error_code:
                return number
            assert not answer.error_code, answer
    assert not until_refused, "the disk never was full"
    return count


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_broker_whose_only_disk_is_full_stops_and_with_more_room_catches_up(
    make_fault_cluster: MakeFaultCluster, small_disks: tuple[SmallDisk, SmallDisk], topic_name: str, who: str
) -> None:
    disk = small_disks[0]
    cluster = make_fault_cluster(launchers={2: disk.launcher}, own={2: {"log.dirs": str(disk.path / "data")}})
    others = [broker for broker in BROKERS if broker != 2]
    cluster.create_topic(topic_name)
    filler = f"{topic_name}-filler"
    cluster.create_topic(filler, [2] if who == "leader" else others[:1])
    broker = cluster.brokers[2]
    with Load(cluster, topic_name) as load:
        taken = fill(cluster, filler, until_refused=who == "leader")
        assert broker.wait(TIMEOUT) == 1
        assert "No space left on device" in broker.log_tail(1000)
        cluster.until_led_by_another(topic_name, 2, range(3))
        load.until_progress()
        disk.grow("300m")
        cluster.mend()
        cluster.until_whole(filler)
        cluster.until_whole(topic_name)
        load.until_progress()
        load.finish_and_check()
    cluster.until_identical(filler)
    assert end_of(cluster, filler) >= taken


def end_of(cluster: FaultCluster, topic: str) -> int:
    with Peer(cluster.leader(topic)) as peer:
        return int(fetch(peer, topic).high_watermark)


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_one_full_disk_of_two_moves_its_partitions_only(
    make_fault_cluster: MakeFaultCluster, small_disks: tuple[SmallDisk, SmallDisk], topic_name: str, who: str
) -> None:
    folders = {disk: disk.path / "data" for disk in small_disks}
    directories = ",".join(str(folder) for folder in folders.values())
    cluster = make_fault_cluster(launchers={2: small_disks[0].launcher}, own={2: {"log.dirs": directories}})
    cluster.create_topic(topic_name, [2, 2, 2, 2])
    filler = f"{topic_name}-filler"
    cluster.create_topic(filler, [2] if who == "leader" else [1])
    for name, partitions in ((filler, 1), (topic_name, 4)):
        until(
            lambda n=name, p=partitions: sum(len(list(f.glob(f"{n}-?"))) for f in folders.values()) == p,  # type: ignore[misc]
            f"logs of {name}",
        )
    (bad,) = (disk for disk in small_disks if (folders[disk] / f"{filler}-0").exists())
    (good,) = (disk for disk in small_disks if disk is not bad)
    good.grow("300m")
    doomed = [p for p in range(4) if (folders[bad] / f"{topic_name}-{p}").exists()]
    assert 0 < len(doomed) < 4
    with Load(cluster, topic_name) as load:
        fill(cluster, filler, until_refused=who == "leader")
        cluster.until_led_by_another(topic_name, 2, doomed)
        for partition in doomed:
            until(lambda p=partition: 2 not in cluster.state(topic_name, p).isr, "it is out of sync")  # type: ignore[misc]
        load.until_progress()
        assert all(cluster.state(topic_name, p).leader == 2 for p in range(4) if p not in doomed)
        assert cluster.brokers[2].is_running
        bad.grow("300m")
        cluster.brokers[2].restart()
        cluster.until_whole(topic_name)
        cluster.until_whole(filler)
        load.finish_and_check()
    cluster.until_identical(filler)


@pytest.mark.parametrize("who", ["leader", "follower", "controller"])
def test_a_data_directory_deleted_under_a_broker_stops_it_and_is_copied_anew(
    cluster: FaultCluster, topic_name: str, who: str
) -> None:
    controller = cluster.controller()
    leader = next(broker for broker in BROKERS if broker != controller)
    cluster.create_topic(topic_name, [leader])
    with Load(cluster, topic_name) as load:
        broker = cluster.brokers[victim(cluster, topic_name, who)]

        def is_deleted() -> bool:
            shutil.rmtree(broker.log_dir, ignore_errors=True)  # it writes files there meanwhile
            return not broker.log_dir.exists()

        until(is_deleted, "the directory is gone")
        assert broker.wait(TIMEOUT) == 1
        assert str(broker.log_dir) in broker.log_tail(1000)
        cluster.until_led_by_another(topic_name, broker.broker_id)
        load.until_progress()
        cluster.mend()
        cluster.until_whole(topic_name)
        load.until_progress()
        load.finish_and_check()


def test_a_broker_back_at_once_with_an_empty_disk_leads_nobody_astray(cluster: FaultCluster, topic_name: str) -> None:
    # The controller dies with it: the next one finds the broker registered anew, and cannot know of its death.
    for turn in range(4):
        topic = f"{topic_name}-{turn}"
        broker = cluster.brokers[cluster.controller()]
        cluster.create_topic(topic, [broker.broker_id] * 3)
        for partition in range(3):
            with Peer(cluster.leader(topic, partition), TIMEOUT) as peer:
                for number in range(20):
                    assert not produce(peer, topic, one_batch(b"%d" % number), partition).error_code
        broker.kill()
        shutil.rmtree(broker.log_dir)
        broker.start()
        until(lambda broker=broker: "without a whole log here" in broker.log_tail(100), "it is back")  # type: ignore[misc]
        cluster.expire(broker.broker_id)
        broker.wait_until_ready(TIMEOUT)
        cluster.until_whole(topic)
        for partition in range(3):
            assert read_all(cluster.leader(topic, partition), topic, partition) == [b"%d" % n for n in range(20)]


def checkpointed(cluster: FaultCluster, broker_id: int, topic: str) -> int:
    """The high watermark of partition 0 as the broker's checkpoint says it."""
    table = read_offsets(Files(), str(cluster.brokers[broker_id].log_dir / HIGH_WATERMARKS))
    return table.get((topic, 0), -1)


@pytest.mark.parametrize("lost", ["a part", "all"])
def test_a_log_that_comes_back_first_without_what_it_had_costs_nobody_anything(
    cluster: FaultCluster, topic_name: str, lost: str
) -> None:
    """All brokers die at once, so that nobody leaves anybody out of the ISR."""
    count = 100
    cluster.create_topic(topic_name, [2])
    with Peer(cluster.leader(topic_name), TIMEOUT) as peer:
        for number in range(count):
            assert not produce(peer, topic_name, one_batch(b"%06d" % number * 20)).error_code
    first = cluster.state(topic_name, 0).leader
    until(lambda: checkpointed(cluster, first, topic_name) == count, "the high watermark is on disk")
    cluster.kill(*BROKERS)
    folder = cluster.brokers[first].log_dir / f"{topic_name}-0"
    if lost == "all":
        shutil.rmtree(folder)
    else:
        file = folder / f"{0:020d}.log"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    cluster.brokers[first].start()
    until(lambda: "without a whole log here" in cluster.brokers[first].log_tail(1000), "it waits")
    cluster.mend()
    cluster.until_whole(topic_name)
    assert end_of(cluster, topic_name) == count
    cluster.until_identical(topic_name)

"""The power of all brokers fails at once, on disks that forget what was not synced: nothing acknowledged is lost.

With a flush before each acknowledgement, for every kind of producer; ZooKeeper, which syncs for itself, stays.
$KBROKER_CUTS says how often (`make soak`: 200), $KBROKER_SOAK_SEED which part of the rest the disks keep. Run by name,
and not by `make test`: a few cuts say little, and many take long.

Beside those cuts, after which the brokers come back and go on, hundreds of moments of one short session are looked at
($KBROKER_MOMENTS): what each disk would have kept, had the power failed then, is recovered as a broker does it, and has
all that was acknowledged before.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kbroker import Admin
from kbroker.segment.log_manager import LogManager
from tests.faults.cluster import BROKERS, FaultCluster, until
from tests.faults.conftest import MakeFaultCluster
from tests.faults.forgetful_disk import PowerSupply, kill_all
from tests.faults.load import Load
from tests.faults.transactions import OurTransactionalWriter, TransactionalWriter, problems, read_committed
from tests.system.writers import UNKNOWN_OFFSET, ConfluentWriter, OurWriter

CUTS = int(os.environ.get("KBROKER_CUTS") or 10)
SEED = int(os.environ.get("KBROKER_SOAK_SEED") or random.randrange(1_000_000))
VALUE = re.compile(rb"([a-z]+)-(\d{7})-\.+")
"""As of tests/system/writers.py."""
PARTITIONS = len(BROKERS)
MOMENTS = int(os.environ.get("KBROKER_MOMENTS") or 200)
SESSION_S = 8.0
CUTS_OF_A_ROUND = 10
SYNC_US = 2000
SHARE_CUT_AGAIN = 0.3
LONGEST_START_S = 2.0
PROPERTIES = {
    "log.flush.interval.messages": "1",
    "log.segment.bytes": "100000",
    "log.index.interval.bytes": "1000",
    "file.delete.delay.ms": "1000",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    # Nobody hangs here: whoever is slow is only slow.
    "replica.lag.time.max.ms": "15000",
    "replica.socket.timeout.ms": "15000",
}
PATIENCE_MS = 120_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 + 120 * CUTS)]


class Ours(OurWriter):
    options: Mapping[str, Any] = {"delivery_timeout_ms": PATIENCE_MS}


class Confluent(ConfluentWriter):
    options: Mapping[str, Any] = {"message.timeout.ms": PATIENCE_MS, "topic.metadata.refresh.interval.ms": 2000}


class Plain(ConfluentWriter):
    """acks=all without an idempotent producer: what is sent again may be there twice."""

    name = "plain"
    is_idempotent = False
    options: Mapping[str, Any] = {**Confluent.options, "enable.idempotence": False, "acks": "all"}


class PoweredCluster:
    """Three brokers, each on a disk that forgets."""

    def __init__(self, make: MakeFaultCluster, library: Path, folder: Path, **properties: str) -> None:
        supplies = {
            broker: PowerSupply(library, folder / f"disk-{broker}", folder / f"journals-{broker}", SYNC_US)
            for broker in BROKERS
        }
        self.supplies = supplies
        self.cluster: FaultCluster = make(
            properties={**PROPERTIES, **properties},
            launchers={broker: supply.launcher() for broker, supply in supplies.items()},
            own={broker: {"log.dirs": str(supply.folder)} for broker, supply in supplies.items()},
        )

    def cut(self, rng: random.Random) -> str:
        """No power for any broker; then all start with what their disks have kept. Returns what that was, in words.

        Sometimes the power fails again while they start.
        """
        kept = [self._fail(rng)]
        while rng.random() < SHARE_CUT_AGAIN:
            for broker in self.cluster.brokers.values():
                broker.start()
            time.sleep(rng.uniform(0, LONGEST_START_S))
            kept.append(self._fail(rng))
        self.cluster.mend()
        return ", and again ".join(kept)

    def _fail(self, rng: random.Random) -> str:
        brokers = self.cluster.brokers
        kill_all([broker.pid for broker in brokers.values() if broker.is_running])
        kept = {}
        for broker_id, supply in self.supplies.items():
            brokers[broker_id].kill()
            kept[broker_id] = rng.random() < 0.5
            supply.after_a_cut(random.Random(rng.random()) if kept[broker_id] else None)
        for broker_id in BROKERS:
            self.cluster.expire(broker_id)
        more = [broker for broker, has_more in kept.items() if has_more]
        return f"more than what was synced on {more}" if more else "what was synced"


@contextlib.contextmanager
def transactions(cluster: FaultCluster, topic: str) -> Iterator[TransactionalWriter]:
    """Transactions on a topic of their own, judged at the end.

    Not librdkafka's: when a transaction is aborted while no broker answers, it gives the numbers of the records that it
    gave up to those of the next transaction, which a broker that has the former takes for repeated.
    """
    cluster.create_topic(topic, [1, 2])
    with OurTransactionalWriter(cluster.bootstrap, topic, 2, topic, SEED) as writer:
        yield writer
    read = read_committed(cluster.bootstrap, topic, 2)
    assert not (found := problems(writer.outcomes, read, 2)), "\n".join(found)


def test_nothing_acknowledged_is_lost_when_the_power_of_all_brokers_fails(
    make_fault_cluster: MakeFaultCluster, library: Path, tmp_path: Path, topic_name: str
) -> None:
    powered = PoweredCluster(make_fault_cluster, library, tmp_path / "power")
    begun = time.monotonic()
    for first in range(0, CUTS, CUTS_OF_A_ROUND):
        topic = f"{topic_name}-{first}"
        powered.cluster.create_topic(topic)
        writers = (Ours, Confluent, Plain)
        with transactions(powered.cluster, f"{topic}-txn") as writer, Load(powered.cluster, topic, writers) as load:
            for number in range(first, min(first + CUTS_OF_A_ROUND, CUTS)):
                rng = random.Random(f"{SEED} {number}")
                time.sleep(rng.random())
                kept = powered.cut(rng)
                print(f"{time.monotonic() - begun:6.1f} s  seed {SEED}, cut {number}, kept {kept}", flush=True)
                load.until_progress()
                writer.until_progress(1)
            load.finish_and_check()
        with Admin(powered.cluster.bootstrap) as admin:
            # Each cut copies all that is on the disks.
            admin.delete_topics([topic, f"{topic}-txn"])


class Stamped(dict[int, tuple[int, int]]):
    """What was acknowledged, and when that was heard."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[int, int]] = []
        """(moment, number)"""

    def __setitem__(self, number: int, place: tuple[int, int]) -> None:
        super().__setitem__(number, place)
        self.heard.append((time.monotonic_ns(), number))


def values(manager: LogManager, topic: str, partition: int) -> dict[int, tuple[str, int]]:
    """Offset -> whose value, and its number, as a recovered log has them."""
    log = manager.get(topic, partition)
    found: dict[int, tuple[str, int]] = {}
    for segment in () if log is None else log.segments:
        data = segment.file.read(segment.size, 0)
        for position, header in segment.headers():
            batch = data[position : position + header.size]
            for offset, match in enumerate(VALUE.finditer(bytes(batch)), header.base_offset):
                found[offset] = match[1].decode(), int(match[2])
    return found


def lost(manager: LogManager, topic: str, written: Mapping[str, Stamped], moment: int) -> list[str]:
    """What was acknowledged before a moment and is not there."""
    found = {partition: values(manager, topic, partition) for partition in range(PARTITIONS)}
    missing = []
    for name, acknowledged in written.items():
        for heard, number in acknowledged.heard:
            partition, offset = acknowledged[number]
            if heard <= moment and found[partition].get(offset) != (name, number):
                is_known = offset != UNKNOWN_OFFSET  # else it was repeated, and the broker does not say where it is
                if is_known or (name, number) not in found[partition].values():
                    missing.append(f"{name} {number}: partition {partition}, offset {offset}")
    return missing


def test_nothing_acknowledged_is_lost_at_whatever_moment_the_power_of_all_fails(
    make_fault_cluster: MakeFaultCluster, library: Path, tmp_path: Path, topic_name: str
) -> None:
    powered = PoweredCluster(make_fault_cluster, library, tmp_path / "power")
    cluster = powered.cluster
    cluster.create_topic(topic_name)
    before = [cluster.state(topic_name, partition) for partition in range(PARTITIONS)]
    written = {kind.name: Stamped() for kind in (Ours, Confluent, Plain)}
    with contextlib.ExitStack() as stack:
        for kind in (Ours, Confluent, Plain):
            writer = kind(cluster, topic_name, PARTITIONS)
            writer.acknowledged = written[kind.name]
            stack.enter_context(writer)
        until(lambda: all(len(each) > 100 for each in written.values()), "all writers get on")
        time.sleep(SESSION_S)
    # The ISRs were whole all the time: each broker has what is acknowledged.
    assert [cluster.state(topic_name, partition) for partition in range(PARTITIONS)] == before
    cluster_id = json.loads(cluster.kazoo.get("/cluster/id")[0])["id"]
    kill_all([broker.pid for broker in cluster.brokers.values()])
    heard = sorted(moment for each in written.values() for moment, _ in each.heard)
    rng = random.Random(SEED)
    for number, moment in enumerate(sorted(rng.uniform(heard[0], heard[-1]) for _ in range(MOMENTS))):
        for broker_id, supply in powered.supplies.items():
            folder = tmp_path / "moment"
            supply.at(int(moment), folder, random.Random(rng.random()) if rng.random() < 0.5 else None)
            manager = LogManager([folder])
            manager.open(broker_id, cluster_id)
            manager.load()
            missing = lost(manager, topic_name, written, int(moment))
            manager.shutdown()
            shutil.rmtree(folder)
            assert not missing, f"seed {SEED}, moment {number}, broker {broker_id} has not: {missing[:5]}"
    print(f"seed {SEED}: {MOMENTS} moments, {len(heard)} acknowledged, 0 lost", flush=True)

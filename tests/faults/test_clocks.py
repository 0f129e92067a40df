"""Brokers whose clocks are days apart, and are set while they run, under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import kbroker
from kbroker.protocol.records.batch import read_header, split_batches
from tests.faults.cluster import BROKERS
from tests.faults.conftest import MakeFaultCluster
from tests.faults.load import Load
from tests.faults.wrong_clock import WrongClock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DAY_S = 86_400
OFFSETS = {1: -DAY_S, 2: 0, 3: 3 * DAY_S}


def test_brokers_whose_clocks_are_days_apart_keep_their_isr_and_their_records(
    make_fault_cluster: MakeFaultCluster, tmp_path: Path, topic_name: str
) -> None:
    clocks = {broker: WrongClock(tmp_path / f"clock-{broker}", OFFSETS[broker]) for broker in BROKERS}
    cluster = make_fault_cluster(
        properties={"replica.lag.time.max.ms": "10000"}, launchers={b: clocks[b].launcher for b in BROKERS}
    )
    cluster.create_topic(topic_name)
    before = [cluster.state(topic_name, partition) for partition in range(3)]
    with Load(cluster, topic_name) as load:
        load.until_progress()
        for broker, offset in OFFSETS.items():
            clocks[broker].set(-offset)
            load.until_progress()
        assert [cluster.state(topic_name, partition) for partition in range(3)] == before
        cluster.kill(2)
        cluster.until_led_by_another(topic_name, 2, range(3))
        load.until_progress()
        cluster.mend()
        cluster.until_whole(topic_name)
        load.finish_and_check()


def test_stamps_that_go_back_at_a_failover_are_the_same_on_all_replicas(
    make_fault_cluster: MakeFaultCluster, tmp_path: Path, topic_name: str
) -> None:
    """With LogAppendTime the leader's clock stamps the records: first one three days ahead, then one that is right."""
    cluster = make_fault_cluster(launchers={3: WrongClock(tmp_path / "clock", OFFSETS[3]).launcher})
    cluster.create_topic(topic_name, [3], message_timestamp_type="LogAppendTime")
    with Load(cluster, topic_name) as load:
        cluster.kill(3)
        cluster.until_led_by_another(topic_name, 3)
        load.until_progress()
        cluster.mend()
        cluster.until_whole(topic_name)
        load.finish_and_check()
    replica = cluster.replica(1, topic_name, 0)
    stamps = [read_header(replica.data, position).max_timestamp for position, _ in split_batches(replica.data)]
    now_ms = time.time() * 1000
    assert stamps[0] > now_ms + 2 * DAY_S * 1000
    assert any(abs(stamp - now_ms) < DAY_S * 1000 for stamp in stamps)  # not the last ones, where the first leads again


class Drift:
    """A context manager: clocks that run faster or slower than time does, each by its own factor."""

    def __init__(self, clocks: Mapping[int, WrongClock], rates: Mapping[int, float]) -> None:
        self._clocks = clocks
        self._rates = rates
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._over.wait(0.05):
            for broker, rate in self._rates.items():
                self._clocks[broker].set(rate * (time.monotonic() - begun))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()


def test_clocks_that_drift_apart_by_an_hour_each_minute_move_nothing(
    make_fault_cluster: MakeFaultCluster, tmp_path: Path, topic_name: str
) -> None:
    """One runs fast, one backwards: nobody leaves an ISR, no transaction ends before its time, all is read once."""
    clocks = {broker: WrongClock(tmp_path / f"clock-{broker}") for broker in BROKERS}
    cluster = make_fault_cluster(
        properties={"replica.lag.time.max.ms": "10000"}, launchers={b: clocks[b].launcher for b in BROKERS}
    )
    cluster.create_topic(topic_name)
    cluster.create_topic(f"{topic_name}-more")
    before = [cluster.state(topic_name, partition) for partition in range(3)]
    with Drift(clocks, {1: 60.0, 3: -60.0}), Load(cluster, topic_name) as load:
        with kbroker.Producer(cluster.bootstrap, transactional_id=topic_name) as producer:
            for _ in range(3):
                with producer.transaction():
                    producer.send(f"{topic_name}-more", b"1")
                    load.until_progress()
        assert [cluster.state(topic_name, partition) for partition in range(3)] == before
        load.finish_and_check()

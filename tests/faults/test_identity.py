"""Two brokers with one id: never both, and nothing is lost whoever has it, under load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from tests.faults.cluster import (
    BROKERS,
    SESSION_MS,
    SHORT_SESSIONS,
    TIMEOUT,
    FaultCluster,
    until,
)
from tests.faults.conftest import MakeFaultCluster
from tests.faults.load import Load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MakeTwin = Callable[[BrokerProcess, int], BrokerProcess]


@pytest.fixture
def make_twin(tmp_path: Path) -> Iterator[MakeTwin]:
    """Start a broker with the id of another, on ports and a data directory of its own."""
    made: list[BrokerProcess] = []

    def make(broker: BrokerProcess, session_ms: int) -> BrokerProcess:
        clients, brokers = free_ports(2)
        addresses = f"CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{brokers}"
        properties = {
            **broker.properties,
            "listeners": addresses,
            "advertised.listeners": addresses,
            "log.dirs": str(tmp_path / "twin" / "data"),
            "zookeeper.session.timeout.ms": str(session_ms),
        }
        made.append(BrokerProcess(broker.broker_id, tmp_path / "twin", clients, properties))
        return made[-1].start()

    yield make
    for twin in made:
        twin.kill()


def test_a_second_broker_with_the_id_of_one_that_runs_does_not_start(
    cluster: FaultCluster, make_twin: MakeTwin, topic_name: str
) -> None:
    epochs = [cluster.broker_epoch(broker) for broker in BROKERS]
    twin = make_twin(cluster.brokers[2], SESSION_MS // 2)  # one that loses its session on the way begins again
    until(lambda: "waiting up to" in twin.log_tail(1000), "its id is taken, and it waits until a session is over")
    cluster.create_topic(topic_name)
    with Load(cluster, topic_name) as load:
        assert twin.wait(TIMEOUT) == 1
        (said,) = (line for line in twin.log_tail(1000).splitlines() if line.startswith("kbroker: "))
        assert "broker id 2 is in use" in said
        assert "Traceback" not in twin.log_tail(1000)
        load.until_progress()
        assert [cluster.broker_epoch(broker) for broker in BROKERS] == epochs
        load.finish_and_check()


def test_a_broker_whose_id_was_taken_while_it_hung_ends_when_it_wakes(
    make_fault_cluster: MakeFaultCluster, make_twin: MakeTwin, topic_name: str
) -> None:
    """The new one begins with an empty directory, is in sync before the old one wakes, and stays."""
    cluster = make_fault_cluster(own={2: SHORT_SESSIONS})
    cluster.create_topic(topic_name)
    with Load(cluster, topic_name) as load:
        old = cluster.brokers[2]
        cluster.pause(2)
        cluster.until_led_by_another(topic_name, 2, range(3))
        twin = cluster.brokers[2] = make_twin(old, SESSION_MS).wait_until_ready(TIMEOUT)
        cluster.until_whole(topic_name)
        epoch = cluster.broker_epoch(2)
        cluster.paused.clear()
        old.resume()
        assert old.wait(TIMEOUT) == 1
        assert "Traceback" not in old.log_tail(1000)
        until(lambda: twin.is_running and cluster.broker_epoch(2) == epoch, "the new one keeps its registration")
        load.until_progress()
        cluster.until_whole(topic_name)
        load.finish_and_check()

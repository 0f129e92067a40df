"""`kbroker dev`, run as users run it: as a process of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.dev.cluster import DevCluster, DevClusterError, known_brokers
from kbroker.dev.free_ports import free_ports
from tests.fixtures.brokers import MakeCluster
from tests.fixtures.zookeeper import ZooKeeperAddress, skip_without_embedded_zookeeper

READY_TIMEOUT = 60.0


@pytest.fixture(autouse=True)
def _has_jars_and_java() -> None:
    skip_without_embedded_zookeeper()


@contextlib.contextmanager
def kbroker_dev(data: Path, *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """Run `kbroker dev`; it gets SIGKILL when the block ends, and its children with it."""
    command = [sys.executable, "-m", "kbroker", "dev", "--port", "0", "--data", str(data), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_ready_file(path: Path, process: "subprocess.Popen[str]") -> dict[str, Any]:
    deadline = time.monotonic() + READY_TIMEOUT
    while time.monotonic() < deadline:
        if path.exists():
            description = json.loads(path.read_text())
            assert isinstance(description, dict)
            return description
        if process.poll() is not None:
            pytest.fail(f"kbroker dev ended with {process.returncode}: {process.communicate()}")
        time.sleep(0.01)
    pytest.fail("no ready file in time")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(pids: list[int], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(is_alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_serves_and_a_signal_ends_all_of_it_with_0(tmp_path: Path, number: signal.Signals) -> None:
    ready_file = tmp_path / "ready.json"
    with kbroker_dev(tmp_path / "data", "--ready-file", str(ready_file)) as process:
        description = wait_for_ready_file(ready_file, process)
        (broker,) = description["brokers"]
        assert broker["id"] == 1
        assert description["bootstrap"] == f"127.0.0.1:{broker['port']}"
        assert broker["log_dirs"] == [str(tmp_path / "data" / "broker-1" / "data")]
        assert description["zookeeper"].startswith("127.0.0.1:")
        assert known_brokers("127.0.0.1", broker["port"]) == {1}
        process.send_signal(number)
        output, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert output.startswith(f"kbroker serves at {description['bootstrap']} ")
        assert output.count("\n") == 1
        assert wait_until_gone([broker["pid"]])


def test_a_second_run_on_the_same_data_serves_again(tmp_path: Path) -> None:
    for _ in range(2):
        ready_file = tmp_path / "ready.json"
        with kbroker_dev(tmp_path / "data", "--ready-file", str(ready_file)) as process:
            wait_for_ready_file(ready_file, process)
            process.terminate()
            process.communicate(timeout=30)
            assert process.returncode == 0
        ready_file.unlink()


def test_when_it_is_killed_everything_ends_and_the_next_run_serves(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    with kbroker_dev(tmp_path / "data", "--ready-file", str(ready_file)) as process:
        description = wait_for_ready_file(ready_file, process)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        pids = [int(pid) for pid in children] + [broker["pid"] for broker in description["brokers"]]
        process.kill()
        process.wait(10)
        assert wait_until_gone(pids)
    ready_file.unlink()
    with kbroker_dev(tmp_path / "data", "--ready-file", str(ready_file)) as process:
        wait_for_ready_file(ready_file, process)
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_a_broker_that_dies_ends_the_cluster_with_1_and_its_last_words(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    with kbroker_dev(tmp_path / "data", "--ready-file", str(ready_file)) as process:
        description = wait_for_ready_file(ready_file, process)
        os.kill(description["brokers"][0]["pid"], signal.SIGKILL)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "kbroker dev: broker 1 was ended by SIGKILL" in errors
        assert "broker.log" in errors


@pytest.mark.slow
def test_three_brokers_know_each_other_when_the_cluster_is_ready(tmp_path: Path) -> None:
    with DevCluster(tmp_path, brokers=3) as cluster:
        for broker in cluster.brokers:
            assert known_brokers("127.0.0.1", broker.port) == {1, 2, 3}
        assert cluster.failure() is None
        text = (tmp_path / "broker-2" / "server.properties").read_text()
        assert "offsets.topic.replication.factor=3\n" in text
        assert "transaction.state.log.min.isr=2\n" in text


def test_brokers_use_the_zookeeper_that_is_given(make_cluster: MakeCluster, zookeeper: ZooKeeperAddress) -> None:
    cluster = make_cluster(1)
    assert cluster.zookeeper is None
    assert cluster.zookeeper_connect.partition("/")[0] == zookeeper.hosts
    assert not (cluster.data_dir / "zookeeper").exists()


def test_properties_reach_the_broker_and_overrule_the_clusters(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, properties={"num.partitions": "7", "group.initial.rebalance.delay.ms": "5"})
    text = (cluster.data_dir / "broker-1" / "server.properties").read_text()
    assert "num.partitions=7\n" in text
    assert "group.initial.rebalance.delay.ms=5\n" in text


def test_brokers_listen_on_consecutive_ports_from_the_given_one(tmp_path: Path) -> None:
    port = next(port for port in free_ports(50) if len(DevCluster(tmp_path, brokers=2, port=port)._choose_ports()) == 2)
    assert DevCluster(tmp_path, brokers=2, port=port)._choose_ports() == [port, port + 1]


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path, own_zookeeper: Any) -> None:
    with pytest.raises(DevClusterError, match=f"port {own_zookeeper.port} on 127.0.0.1 is taken"):
        DevCluster(tmp_path / "data", port=own_zookeeper.port).start()
    assert not (tmp_path / "data" / "zookeeper").exists()


def test_a_directory_in_use_is_refused(make_cluster: MakeCluster) -> None:
    running = make_cluster(1)
    with pytest.raises(DevClusterError, match="another cluster runs on"):
        DevCluster(running.data_dir).start()
    assert running.failure() is None


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DevClusterError, match="cannot write to the data directory"):
        DevCluster(tmp_path / "file" / "data").start()

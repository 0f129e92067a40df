"""`kbroker dev`, run as users run it: as a process of its own."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.dev.cluster import known_brokers
from kbroker.dev.stand_in_zookeeper import StandInZooKeeper
from tests.fixtures.zookeeper import skip_without_embedded_zookeeper

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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


def test_the_stand_in_runs_where_it_is_asked_for_and_on_its_own_data(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    for kind in ("stand-in", None):
        asked = ("--zookeeper", kind) if kind is not None else ()
        with kbroker_dev(tmp_path / "data", "--ready-file", str(ready_file), *asked) as process:
            description = wait_for_ready_file(ready_file, process)
            assert description["zookeeper_kind"] == "stand-in"
            process.terminate()
            output, errors = process.communicate(timeout=30)
            assert process.returncode == 0, errors
            assert f"; stand-in for ZooKeeper at {description['zookeeper']}, data in" in output
        ready_file.unlink()


def test_a_stand_in_that_cannot_run_ends_it_with_1_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "data" / "zookeeper" / "version-2").mkdir(parents=True)
    with kbroker_dev(tmp_path / "data", "--zookeeper", "stand-in") as process:
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (1, "")
    assert errors.startswith("kbroker dev: the stand-in for ZooKeeper cannot run: ")
    assert "holds the data of a real ZooKeeper" in errors
    assert errors.count("\n") == 1


def test_a_broker_started_by_hand_is_refused_by_the_stand_in(tmp_path: Path) -> None:
    with StandInZooKeeper(tmp_path / "zookeeper") as server:
        properties = tmp_path / "server.properties"
        properties.write_text(
            f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n"
            f"zookeeper.connect={server.connect_string}/chroot\n"
        )
        command = [sys.executable, "-m", "kbroker", "start", str(properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert "leads to kbroker's stand-in for ZooKeeper, which is for development and tests only" in done.stderr
        command += ["--set", "kbroker.allow.stand.in.zookeeper=true", "--set", "listeners=PLAINTEXT://0.0.0.0:0"]
        command += ["--set", "advertised.listeners=PLAINTEXT://127.0.0.1:9092"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        assert "0.0.0.0:0 is not on loopback" in done.stderr


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
        process.wait(60)
        assert wait_until_gone(pids)
    ready_file.unlink()
    with kbroker_dev(tmp_path / "data", "--ready-file", str(ready_file)) as process:
        wait_for_ready_file(ready_file, process)
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_the_only_broker_that_dies_ends_the_cluster_with_1_and_its_last_words(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    with kbroker_dev(tmp_path / "data", "--ready-file", str(ready_file)) as process:
        description = wait_for_ready_file(ready_file, process)
        os.kill(description["brokers"][0]["pid"], signal.SIGKILL)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "kbroker dev: broker 1 was ended by SIGKILL" in errors
        assert "broker.log" in errors


@pytest.mark.slow
def test_of_three_brokers_one_may_die_and_is_started_again_by_the_line_that_is_printed(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    with kbroker_dev(tmp_path / "the data", "--brokers", "3", "--ready-file", str(ready_file)) as process:
        description = wait_for_ready_file(ready_file, process)
        ports = [broker["port"] for broker in description["brokers"]]
        os.kill(description["brokers"][1]["pid"], signal.SIGKILL)
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "broker 2 was ended by SIGKILL" in line
        assert "2 of 3 brokers go on" in line
        typed = shlex.split(process.stderr.readline().partition("again with: ")[2])
        # In another shell, where nobody has activated anything.
        with subprocess.Popen(typed, stderr=subprocess.DEVNULL, cwd="/", env={"PATH": "/usr/bin:/bin"}) as again:
            try:
                assert f"broker 2 serves again, with pid {again.pid}" in process.stderr.readline()
                for broker in (description["brokers"][0], description["brokers"][2]):
                    os.kill(broker["pid"], signal.SIGKILL)
                while known_brokers("127.0.0.1", ports[1]) != {2}:  # the time limit of the test ends it
                    time.sleep(0.1)
                assert process.poll() is None, "one broker is left"
                process.terminate()
                assert process.wait(60) == 0
                assert again.wait(30) == 0, "what was started by hand ends with the cluster, in order"
            finally:
                again.kill()


@pytest.mark.slow
def test_without_any_broker_the_cluster_ends_with_1(tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    with kbroker_dev(tmp_path / "data", "--brokers", "2", "--ready-file", str(ready_file)) as process:
        for broker in wait_for_ready_file(ready_file, process)["brokers"]:
            os.kill(broker["pid"], signal.SIGKILL)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 1
        assert errors.endswith("kbroker dev: all brokers have ended\n")


COMPANION = """
import os, sys
from kbroker.dev.cluster import DevCluster
from kbroker.dev.run import run

beside = "import os, time; print('beside', os.getpid(), os.environ['KBROKER_BOOTSTRAP'], flush=True); time.sleep(600)"
sys.exit(run(DevCluster(sys.argv[1], zookeeper="stand-in"), None, [sys.executable, "-c", beside]))
"""


def test_what_runs_beside_it_is_told_the_brokers_and_ends_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMPANION, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline(), process.stdout.readline()]
            serves, beside = sorted(lines, key=lambda line: line.startswith("beside"))
            _, pid, bootstrap = beside.split()
            assert f"kbroker serves at {bootstrap} " in serves
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert wait_until_gone([int(pid)])
        finally:
            process.kill()

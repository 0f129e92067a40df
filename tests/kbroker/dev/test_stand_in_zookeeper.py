"""The stand-in as a process: serves at once, keeps its data, ends with its parent, says why it cannot run."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from kbroker.dev.stand_in_zookeeper import PROGRAM, StandInError, StandInZooKeeper
from tests.kbroker.dev.test_embedded_zookeeper import run_in_session, wait_until_gone

PARENT_PROGRAM = """
import sys, time
from kbroker.dev.stand_in_zookeeper import StandInZooKeeper
print(StandInZooKeeper(sys.argv[1]).start().pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[StandInZooKeeper]:
    with StandInZooKeeper(tmp_path / "zookeeper") as server:
        yield server


def test_it_serves_on_loopback_only_and_keeps_its_data_between_starts(tmp_path: Path) -> None:
    with StandInZooKeeper(tmp_path) as server:
        run_in_session(server, lambda client: client.create("/kept", b"value"))
        first_port = server.port
        addresses = {line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
        assert f"0100007F:{server.port:04X}" in addresses
        assert f"00000000:{server.port:04X}" not in addresses
    assert not server.is_running
    with server:
        assert server.port == first_port
        assert run_in_session(server, lambda client: client.get("/kept")[0]) == b"value"
        assert server.log_file.read_text() == ""


@pytest.mark.parametrize("sync", [True, False])
def test_what_it_acknowledged_survives_its_kill(tmp_path: Path, sync: bool) -> None:
    with StandInZooKeeper(tmp_path, sync=sync) as server:
        run_in_session(server, lambda client: [client.create(f"/node-{n}", b"x") for n in range(50)])
        server.kill()
        server.start()
        found = run_in_session(server, lambda client: client.get_children("/"))
        assert {f"node-{n}" for n in range(50)} <= set(found)  # type: ignore[call-overload]


def test_a_clients_session_and_ephemerals_survive_a_restart(stand_in: StandInZooKeeper) -> None:
    client = KazooClient(hosts=stand_in.connect_string, timeout=20)
    client.start(timeout=20)
    try:
        client.create("/e", b"", ephemeral=True)
        session = client.client_id
        stand_in.kill()
        stand_in.start()
        assert client.retry(client.get, "/e")[1].ephemeralOwner == client.client_id[0]
        assert client.client_id == session
    finally:
        client.stop()
        client.close()


def test_a_paused_one_answers_nothing_until_it_resumes(stand_in: StandInZooKeeper) -> None:
    stand_in.pause()
    with socket.create_connection(("127.0.0.1", stand_in.port), timeout=20) as connection:
        connection.sendall(b"ruok")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(4)
        stand_in.resume()
        connection.settimeout(20)
        assert connection.recv(4) == b"imok"


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT_PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            parent.kill()
            parent.wait(60)
            assert wait_until_gone(pid)
        finally:
            if not wait_until_gone(pid, seconds=0.1):
                os.kill(pid, signal.SIGKILL)


def test_a_second_one_on_the_same_directory_is_refused(stand_in: StandInZooKeeper) -> None:
    with pytest.raises(StandInError, match="another ZooKeeper or stand-in runs on"):
        StandInZooKeeper(stand_in.data_dir).start()


def test_a_taken_port_is_named(stand_in: StandInZooKeeper, tmp_path: Path) -> None:
    with pytest.raises(StandInError, match=f"port {stand_in.port} on 127.0.0.1 is taken"):
        StandInZooKeeper(tmp_path / "second", port=stand_in.port).start()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StandInError, match="cannot write to ZooKeeper's data directory"):
        StandInZooKeeper(tmp_path / "file" / "data").start()


def test_damaged_data_gives_one_line_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "stand-in").mkdir(parents=True)
    (tmp_path / "stand-in" / "log.0000000000000001").write_bytes(b"not a log at all")
    with pytest.raises(StandInError, match=r"log\.0000000000000001 is damaged") as raised:
        StandInZooKeeper(tmp_path).start()
    assert "\n" not in str(raised.value)


def test_another_address_than_loopback_is_refused(tmp_path: Path) -> None:
    StandInZooKeeper(tmp_path, host="localhost")
    with pytest.raises(StandInError, match=r"does not listen on 0\.0\.0\.0: it is for development and tests only"):
        StandInZooKeeper(tmp_path, host="0.0.0.0")


def test_its_process_takes_no_socket_on_another_address(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        descriptor = listener.fileno()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "data"), str(descriptor), "1", "no-sync", "250"],
            pass_fds=[descriptor],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "it does not listen on 0.0.0.0: it is for development and tests only, on 127.0.0.1\n"
    assert not (tmp_path / "data").exists()

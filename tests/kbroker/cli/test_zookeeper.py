"""`kbroker zookeeper`: the embedded ZooKeeper, or the stand-in, by itself."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.zookeeper import skip_without_embedded_zookeeper
from tests.kbroker.cli.commands import kbroker


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--stand-in",), ("--stand-in", "--sync")])
def test_it_says_where_it_serves_and_a_signal_ends_it_with_0(tmp_path: Path, options: tuple[str, ...]) -> None:
    if not options:
        skip_without_embedded_zookeeper()
    command = [sys.executable, "-m", "kbroker", "zookeeper", "--port", "0", "--data", str(tmp_path / "data"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            name = "stand-in for ZooKeeper" if options else "ZooKeeper"
            assert line.startswith(f"{name} serves at 127.0.0.1:")
            port = int(line.partition("127.0.0.1:")[2].partition(",")[0])
            with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                connection.sendall(b"ruok")
                assert connection.recv(4) == b"imok"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("options", [(), ("--stand-in",)])
def test_another_address_than_loopback_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = kbroker("zookeeper", "--host", "0.0.0.0", "--data", str(tmp_path / "data"), *options)
    assert done.returncode == 1
    assert "does not listen on 0.0.0.0" in done.stderr
    assert not (tmp_path / "data").exists()
    assert kbroker("zookeeper", "--sync").returncode == 2


def test_where_it_cannot_run_the_stand_in_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kbroker.dev.embedded_zookeeper.find_java", lambda: Path("java"))
    monkeypatch.setattr("kbroker.dev.embedded_zookeeper._jar_folders", list)
    done = kbroker("zookeeper", "--data", str(tmp_path / "data"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "pip install 'kbroker[spark]', or the stand-in" in done.stderr
    assert "kbroker zookeeper --stand-in" in done.stderr

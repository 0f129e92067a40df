"""`kbroker start`: a broker from a properties file."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kbroker.dev.cluster import known_brokers
from kbroker.dev.free_ports import free_ports
from tests.fixtures.zookeeper import ZooKeeperAddress
from tests.kbroker.cli.commands import fail, kbroker


def write_properties(folder: Path, zookeeper: str, port: int) -> Path:
    file = folder / "server.properties"
    file.write_text(
        f"broker.id=7\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
        f"zookeeper.connect={zookeeper}\nlog.dirs={folder / 'data'}\n"
    )
    return file


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_it_serves_until_a_signal_with_settings_of_the_command_line(
    tmp_path: Path, zookeeper: ZooKeeperAddress, number: signal.Signals
) -> None:
    ready, port = tmp_path / "ready.json", free_ports(1)[0]
    file = write_properties(tmp_path, zookeeper.connect_string, port)
    command = [sys.executable, "-m", "kbroker", "start", str(file), "--set", "broker.id=8", "--ready-file", str(ready)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + 30
            while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            assert json.loads(ready.read_text())["id"] == 8
            assert known_brokers("127.0.0.1", port) == {8}
            process.send_signal(number)
            process.communicate(timeout=30)
            assert process.returncode == 0
        finally:
            process.kill()


def test_a_wrong_value_ends_it_with_a_line_that_names_the_key(tmp_path: Path) -> None:
    file = write_properties(tmp_path, "127.0.0.1:1", 9092)
    done = kbroker("start", str(file), "--set", "num.partitions=many")
    assert done.returncode == 1
    assert "num.partitions" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_text_ends_it_with_a_line_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("broker.id=7".encode("utf-16"))
    assert f"{file} is not a text file" in fail("start", str(file))

"""`kbroker zookeeper`: the embedded ZooKeeper by itself."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.fixtures.zookeeper import skip_without_embedded_zookeeper


def test_it_says_where_it_serves_and_a_signal_ends_it_with_0(tmp_path: Path) -> None:
    skip_without_embedded_zookeeper()
    command = [sys.executable, "-m", "kbroker", "zookeeper", "--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ZooKeeper serves at 127.0.0.1:")
            port = int(line.partition("127.0.0.1:")[2].partition(",")[0])
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(b"ruok")
                assert connection.recv(4) == b"imok"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()

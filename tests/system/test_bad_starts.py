"""What keeps a broker from starting is told in one line that names what, where and what to do; status 1, no traceback.

More of these are beside the modules: test_broker.py (ports, locks, owners), test_bad_disks.py, test_zookeeper_loss.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.brokers import MakeBroker

pytestmark = pytest.mark.slow


def start(tmp_path: Path, lines: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n{lines}\n")
    command = [sys.executable, "-m", "kbroker.process", str(file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("lines", "arguments", "said"),
    [
        ("zookeeper.connect=:::", (), "zookeeper.connect=:::"),
        ("zookeeper.connect=host:port", (), "zookeeper.connect=host:port"),
        ("zookeeper.connect=x:1\nlisteners=garbage", (), "listeners"),
        ("zookeeper.connect=x:1\nlisteners=PLAINTEXT://:99999", (), "99999"),
        ("zookeeper.connect=x:1\nlog.dirs=", (), "log.dirs"),
        ("zookeeper.connect=x:1\nlog.segment.bytes=5", (), "log.segment.bytes"),
        ("zookeeper.connect=x:1\nlog.cleanup.policy=shred", (), "log.cleanup.policy"),
        ("zookeeper.connect=x:1", ("--set", "num.io.threads=0"), "num.io.threads"),
        ("zookeeper.connect=x:1", ("--set", "log.retention.ms=soon"), "log.retention.ms"),
    ],
)
def test_a_malformed_configuration_is_one_line_that_names_the_key(
    tmp_path: Path, lines: str, arguments: tuple[str, ...], said: str
) -> None:
    done = start(tmp_path, lines, *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("kbroker: ")
    assert said in line


def test_a_setting_without_a_value_is_wrong_usage(tmp_path: Path) -> None:
    done = start(tmp_path, "zookeeper.connect=x:1", "--set", "nonsense")
    assert done.returncode == 2
    assert "--set nonsense: expected KEY=VALUE" in done.stderr


@pytest.mark.parametrize("listeners", ["PLAINTEXT://nobody.invalid:0", "PLAINTEXT://192.0.2.1:0"])
def test_an_address_that_is_not_ours_is_named(make_broker: MakeBroker, listeners: str) -> None:
    broker = make_broker(properties={"listeners": listeners}, wait=False)
    assert broker.wait(30) == 1
    log = broker.log_tail(100)
    assert "Traceback" not in log
    assert f"cannot listen on {listeners}" in log.splitlines()[-1]

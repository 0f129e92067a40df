"""The pytest plugin, in a pytest run of its own as a user's project has it."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.fixtures.zookeeper import skip_without_embedded_zookeeper

ROOT = str(Path(__file__).resolve().parents[2])
PAGE = Path(ROOT) / "docs" / "testing.md"
pytestmark = pytest.mark.slow
USERS_TESTS = """
import pytest
from kbroker import Admin, Consumer, Producer

def test_mine(kbroker_cluster, kbroker_topic):
    with Producer(kbroker_cluster.bootstrap) as producer:
        producer.send(kbroker_topic, value=b"hello").result(30)
    with Consumer(kbroker_cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([kbroker_topic])
        (record,) = consumer.poll(10.0)
        assert record.value == b"hello"

def test_the_zookeeper_is_the_one_that_was_asked_for(kbroker_cluster):
    assert (kbroker_cluster.directory / "zookeeper" / "stand-in").is_dir()

def test_each_test_has_a_topic_of_its_own(kbroker_cluster, kbroker_topic):
    with Admin(kbroker_cluster.bootstrap) as admin:
        assert kbroker_topic in admin.list_topics()
        admin.delete_topic(kbroker_topic)

def test_a_fault_that_is_left_behind(kbroker_cluster):
    kbroker_cluster.faults.refuse()

def test_meets_no_test_after_it(kbroker_cluster):
    with Admin(kbroker_cluster.faults.bootstrap, request_timeout_ms=30000) as admin:
        admin.list_topics()

@pytest.mark.kbroker_topic(partitions=3, configs={"retention.ms": "1234567"})
def test_a_marker_says_how_the_topic_is_made(kbroker_cluster, kbroker_topic):
    with Admin(kbroker_cluster.bootstrap) as admin:
        assert len(admin.describe_topics([kbroker_topic])[kbroker_topic].partitions) == 3
        broker = admin.describe_configs("BROKER", ["1"])["1"]
    assert broker["message.max.bytes"].value == "12345"
"""


def run_pytest(folder: Path, *arguments: str, plugins: bool) -> "subprocess.CompletedProcess[str]":
    """Run a user's tests; `plugins`: those that installed packages bring, as usual."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    if not plugins:
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments, str(folder)],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=folder,
        env={**environment, "PYTHONPATH": ROOT},
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "test_users.py").write_text(USERS_TESTS)
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "test_docs.py").write_text(snippets[0])
    (tmp_path / "test_faults.py").write_text(snippets[2])
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nkbroker_zookeeper = stand-in\nkbroker_properties =\n    message.max.bytes = 12345\n"
    )
    return tmp_path


def test_a_users_test_has_a_cluster_and_a_fresh_topic(project: Path) -> None:
    done = run_pytest(project, "--strict-markers", "-p", "kbroker.pytest_plugin", plugins=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout


def test_the_installed_package_brings_the_plugin(project: Path) -> None:
    if "kbroker" not in {each.name for each in entry_points(group="pytest11")}:
        pytest.skip("kbroker is not installed here")
    done = run_pytest(project, "--fixtures", plugins=True)
    assert "kbroker_cluster [session scope]" in done.stdout, done.stdout + done.stderr
    assert "kbroker_topic --" in done.stdout


@pytest.mark.parametrize(
    ("ini", "test", "reason"),
    [
        ("kbroker_properties = oops", "def test_x(kbroker_cluster): pass", "'oops' is not key=value"),
        (
            "kbroker_brokers = 1",
            "@pytest.mark.kbroker_topic(size=3)\ndef test_x(kbroker_topic): pass",
            "takes partitions=",
        ),
    ],
)
def test_a_wrong_setting_is_told(tmp_path: Path, ini: str, test: str, reason: str) -> None:
    skip_without_embedded_zookeeper()
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    (tmp_path / "test_users.py").write_text(f"import pytest\n{test}\n")
    done = run_pytest(tmp_path, "-p", "kbroker.pytest_plugin", plugins=False)
    assert done.returncode != 0
    assert reason in done.stdout

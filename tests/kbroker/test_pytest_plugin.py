"""The pytest plugin, in a pytest run of its own as a user's project has it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.fixtures.zookeeper import skip_without_embedded_zookeeper

USERS_TESTS = """
from kbroker import Admin, Consumer, Producer

def test_mine(kbroker_cluster, kbroker_topic):
    with Producer(kbroker_cluster.bootstrap) as producer:
        producer.send(kbroker_topic, value=b"hello").result(30)
    with Consumer(kbroker_cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([kbroker_topic])
        (record,) = consumer.poll(10.0)
        assert record.value == b"hello"

def test_each_test_has_a_topic_of_its_own(kbroker_cluster, kbroker_topic):
    with Admin(kbroker_cluster.bootstrap) as admin:
        assert admin.list_topics() == [kbroker_topic]
"""


def test_a_users_test_has_a_cluster_and_a_fresh_topic(tmp_path: Path) -> None:
    skip_without_embedded_zookeeper()
    (tmp_path / "test_users.py").write_text(USERS_TESTS)
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "kbroker.pytest_plugin", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout

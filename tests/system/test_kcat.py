"""kcat: the command-line tool on librdkafka."""

import json
import shutil
import subprocess

import pytest

from kbroker.dev.broker_process import BrokerProcess

KCAT = shutil.which("kcat") or shutil.which("kafkacat")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(KCAT is None, reason="kcat is not installed")]


def kcat(broker: BrokerProcess, *arguments: str, given: str = "") -> str:
    command = [str(KCAT), "-b", broker.bootstrap, "-m", "10", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lines_written_by_kcat_are_read_by_kcat(broker: BrokerProcess, topic_name: str) -> None:
    lines = "".join(f"key-{number}:value {number}\n" for number in range(100))
    kcat(broker, "-P", "-t", topic_name, "-p", "0", "-K:", "-H", "source=kcat", "-z", "snappy", given=lines)
    read = kcat(broker, "-C", "-t", topic_name, "-p", "0", "-e", "-q", "-f", "%k:%s\\n")
    assert read == lines
    (last,) = kcat(broker, "-C", "-t", topic_name, "-p", "0", "-o", "-1", "-e", "-q", "-f", "%o %h\\n").splitlines()
    assert last == "99 source=kcat"


def test_metadata_are_listed(broker: BrokerProcess, topic_name: str) -> None:
    kcat(broker, "-P", "-t", topic_name, "-p", "0", given="one\n")
    listed = json.loads(kcat(broker, "-L", "-J", "-t", topic_name))
    assert listed["brokers"] == [{"id": 1, "name": f"127.0.0.1:{broker.port}"}]
    (topic,) = listed["topics"]
    assert topic["topic"] == topic_name
    assert topic["partitions"][0]["leader"] == 1


def test_offsets_are_queried_by_time(broker: BrokerProcess, topic_name: str) -> None:
    kcat(broker, "-P", "-t", topic_name, "-p", "0", given="one\ntwo\n")
    assert kcat(broker, "-Q", "-t", f"{topic_name}:0:-1").strip() == f"{topic_name} [0] offset 2"

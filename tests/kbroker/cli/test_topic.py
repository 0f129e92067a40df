"""`kbroker topic list|describe|create|alter|delete` on a real broker."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.free_ports import free_ports
from tests.kbroker.cli.commands import fail, kbroker, rows, succeed

NOT_FOR_A_LIST = (
    "cryptography",
    "kazoo",
    "kbroker.broker",
    "kbroker.client.authentication",
    "kbroker.client.consumer",
    "kbroker.client.producer",
    "kbroker.security.jaas",
    "numpy",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "rich",
    "yaml",
)
"""Each costs a tenth of a second, or would bring the server side along."""


@pytest.fixture(autouse=True)
def _bootstrap(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)


@pytest.fixture
def topic(topic_name: str) -> Iterator[str]:
    succeed("topic", "create", topic_name, "-p", "2", "-c", "retention.ms=86400000")
    yield topic_name
    kbroker("topic", "delete", topic_name)


def test_a_topic_that_was_created_is_listed_and_described(topic: str) -> None:
    assert {"topic": topic, "partitions": 2, "replicas": 1} in rows("topic", "list")
    described = {
        "topic": topic,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "start_offset": 0,
        "end_offset": 0,
        "state": "ok",
    }
    assert rows("topic", "describe", topic) == [{**described, "partition": 0}, {**described, "partition": 1}]


@pytest.mark.slow
def test_a_list_is_there_soon_because_it_loads_only_what_it_needs(topic: str) -> None:
    program = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print(gc.get_freeze_count(), file=sys.stderr))\n"
        "from kbroker.cli import main\n"
        "sys.argv[1:] = ['topic', 'list']\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code == 0, end.code\n"
        f"loaded = [name for name in {NOT_FOR_A_LIST!r} if name in sys.modules]\n"
        "assert not loaded, loaded\n"
        "assert gc.get_threshold()[0] > 10_000, gc.get_threshold()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert topic in done.stdout.split()
    assert int(done.stderr.split()[-1]) > 10_000, "at its end the interpreter looks through all that was loaded"


def test_a_table_has_a_heading_and_a_line_for_each_row(topic: str) -> None:
    heading, *lines = succeed("topic", "describe", topic).splitlines()
    assert heading.split()[:3] == ["topic", "partition", "leader"]
    assert [line.split()[:3] for line in lines] == [[topic, "0", "1"], [topic, "1", "1"]]


def test_partitions_are_added_and_settings_set_and_unset(topic: str) -> None:
    succeed("topic", "alter", topic, "-p", "4", "-c", "max.message.bytes=4321", "--unset", "retention.ms")
    assert len(rows("topic", "describe", topic)) == 4
    described = rows("config", "describe", "topic", topic)
    own = {entry["key"]: entry["value"] for entry in described if entry["source"] == "dynamic_topic_config"}
    assert own == {"max.message.bytes": "4321"}


def test_a_deleted_topic_is_gone(topic: str) -> None:
    succeed("topic", "delete", topic)
    assert topic not in [row["topic"] for row in rows("topic", "list")]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in fail("topic", "describe", topic)


def test_creating_it_again_fails_unless_that_is_welcome(topic: str) -> None:
    assert "already exists" in fail("topic", "create", topic)
    assert kbroker("topic", "create", topic, "--if-not-exists").stderr == f"{topic} is there already\n"


def test_what_was_changed_is_said_in_a_line_beside_the_output(topic_name: str) -> None:
    for arguments, line in (
        (("topic", "create", topic_name, "-p", "2"), f"made {topic_name}: partitions 2, replicas 1"),
        (("topic", "alter", topic_name, "-p", "3"), f"{topic_name} has 3 partitions"),
        (("topic", "alter", topic_name, "-c", "retention.ms=5"), f"{topic_name}: changed retention.ms"),
        (
            ("config", "alter", "topic", topic_name, "--unset", "retention.ms"),
            f"topic {topic_name}: changed: retention.ms",
        ),
        (("topic", "delete", topic_name), f"deleted {topic_name}"),
    ):
        done = kbroker(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{line}\n"), arguments


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("create", "a bad name"), "Topic name is invalid"),
        (("create", "too-many-replicas", "-r", "3"), "INVALID_REPLICATION_FACTOR"),
        (("create", "wrong-key", "-c", "no.such.key=1"), "no.such.key"),
        (("create", "wrong-key", "-c", "retentoin.ms=1"), "did you mean retention.ms"),
        (("delete", "no-such-topic"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("alter", "no-such-topic", "-p", "2"), "no-such-topic"),
    ],
)
def test_what_the_broker_refuses_is_told_in_a_line(arguments: tuple[str, ...], reason: str) -> None:
    assert reason in fail("topic", *arguments)


def test_without_a_broker_the_address_is_named() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    assert address in fail("topic", "list", "-b", address)


def test_altering_nothing_is_wrong_usage(topic: str) -> None:
    done = kbroker("topic", "alter", topic)
    assert done.returncode == 2
    assert "nothing to alter" in done.stderr

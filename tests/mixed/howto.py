"""The page docs/moving-from-kafka.md as a script: what it tells a user to type is what the tests do."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from kbroker.dev.broker_process import BrokerProcess
from tests.faults.cluster_view import until
from tests.fixtures.java import JavaTool
from tests.fixtures.kafka import KAFKA, KBROKER
from tests.kbroker.cli.commands import succeed
from tests.mixed.cluster import STOP_TIMEOUT, MixedCluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "moving-from-kafka.md"
SAMPLE_ADDRESS = "127.0.0.1:9092"
NOTHING_FOUND = ("", "[]", "no such partitions")


def section(title: str) -> str:
    """The text below a heading of the page."""
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def commands(title: str) -> list[str]:
    """What a section tells the user to type, in order."""
    return re.findall(r"^ +((?:kafka-\S+\.sh|kbroker) .*|kafka-server-stop\.sh)$", section(title), re.MULTILINE)


def properties() -> dict[str, str]:
    """The settings that the page names."""
    lines = re.findall(r"^    ([a-z.]+)=(\S+)$", section("What must hold before"), re.MULTILINE)
    return dict(lines)


class Howto:
    """Carries out the page's commands on a cluster of the tests."""

    def __init__(self, cluster: MixedCluster, java_tool: JavaTool) -> None:
        self.cluster = cluster
        self.java_tool = java_tool

    def move(self, broker_id: int) -> None:
        """Follow "Each broker" for one of them."""
        for command in commands("Each broker"):
            self._do(command, broker_id)

    def move_back(self, broker_id: int) -> None:
        """Follow the same steps with the roles exchanged, as "Going back" says."""
        (start,) = commands("Going back")
        for command in commands("Each broker"):
            self._do(start if command.startswith("kbroker start") else command, broker_id)

    def controller(self) -> int:
        """Which broker "Which broker first" finds to be the controller."""
        (command,) = commands("Which broker first")
        rows = [line.split() for line in self._kbroker(command).splitlines() if " True " in line or " yes " in line]
        ((broker_id, *_),) = rows
        return int(broker_id)

    def _do(self, command: str, broker_id: int) -> None:
        broker: BrokerProcess = self.cluster.brokers[broker_id]
        if command == "kafka-server-stop.sh":
            broker.stop(STOP_TIMEOUT)
        elif command == "kbroker start server.properties":
            self.cluster.start_broker(broker_id, KBROKER)
        elif command == "kafka-server-start.sh server.properties":
            self.cluster.start_broker(broker_id, KAFKA)
        elif "--under-replicated" in command:
            until(lambda: self._run(command).strip() in NOTHING_FOUND, f"{command} goes on finding some")
        else:
            self._run(command)

    def _run(self, command: str) -> str:
        if command.startswith("kbroker "):
            return self._kbroker(command)
        assert command.startswith("kafka-topics.sh "), command
        arguments = shlex.split(command.replace(SAMPLE_ADDRESS, self.cluster.bootstrap))[1:]
        return self.java_tool("org.apache.kafka.tools.TopicCommand", *arguments)

    def _kbroker(self, command: str) -> str:
        return succeed(*shlex.split(command.replace(SAMPLE_ADDRESS, self.cluster.bootstrap))[1:])

"""Three ZooKeepers that are one, each of which the test may kill and start again."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from kbroker.dev.free_ports import free_ports
from kbroker.dev.zookeeper_child import HOST

MEMBERS = (1, 2, 3)
START_S = 120
QUORUM = """\
initLimit=40
syncLimit=20
"""


class Member(EmbeddedZooKeeper):
    """One of them; `peers` are the ports of all for their own talk, two each."""

    def __init__(self, folder: Path, number: int, port: int, peers: Mapping[int, tuple[int, int]]) -> None:
        super().__init__(folder, port)
        self.number = number
        self._peers = peers

    def _write_configuration(self) -> None:
        super()._write_configuration()
        servers = [f"server.{number}={HOST}:{one}:{other}\n" for number, (one, other) in self._peers.items()]
        with (self.data_dir / "zoo.cfg").open("a") as file:
            file.write(QUORUM + "".join(servers))
        (self.data_dir / "myid").write_text(f"{self.number}\n")


class Ensemble:
    """A context manager; nobody runs after it."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(3 * len(MEMBERS), HOST)
        peers = {number: (ports[3 * at + 1], ports[3 * at + 2]) for at, number in enumerate(MEMBERS)}
        self.members = [
            Member(folder / f"zookeeper-{number}", number, ports[3 * at], peers) for at, number in enumerate(MEMBERS)
        ]

    @property
    def connect_string(self) -> str:
        """All of them."""
        return ",".join(each.connect_string for each in self.members)

    def __enter__(self) -> Ensemble:
        try:
            with ThreadPoolExecutor() as pool:  # one alone serves nobody
                list(pool.map(lambda member: member.start(START_S), self.members))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for member in self.members:
            member.kill()

"""A real cluster for the tests of those who use brokers: `with Cluster() as cluster: …`.

    from kbroker.testing import Cluster

    with Cluster(brokers=1) as cluster:
        producer = Producer(cluster.bootstrap)

Everything runs in child processes and in a temporary folder, and is gone at the end. The fixtures of
`kbroker.pytest_plugin` are made of this. `cluster.faults` breaks links to clients that use `cluster.faults.bootstrap`;
`Faults(bootstrap)` does the same before any cluster.
"""

import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.cluster import DevCluster
from kbroker.verify.proxy.injection import Faults as Faults

TEST_PROPERTIES = {
    # Tests write old timestamps, and would wonder where their records are after the next retention check.
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}


class Cluster:
    """ZooKeeper and brokers on free ports of loopback; a context manager."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        zookeeper: str | None = None,
        directory: Path | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Describe the cluster; nothing runs yet.

        `properties`: Kafka's broker keys, for each broker. `zookeeper`: connect string of one that runs, or which to
        run: "stand-in", "embedded"; by itself a real one where a JVM and its jars are there. `directory`: where the
        data goes and stays; default: a temporary one.
        """
        self._is_temporary = directory is None
        self.directory = directory if directory is not None else _new_directory()
        self._cluster = DevCluster(
            self.directory,
            brokers=brokers,
            zookeeper=zookeeper,
            properties={**TEST_PROPERTIES, **(properties or {})},
            timeout=timeout,
        )
        self._faults: Faults | None = None

    @property
    def faults(self) -> Faults:
        """What happens to the clients that use `faults.bootstrap`, and to no others; nothing runs before it is used."""
        if self._faults is None:
            self._faults = Faults(self.bootstrap)
        return self._faults

    def heal(self) -> None:
        """End all faults; nothing is started for it."""
        if self._faults is not None:
            self._faults.heal()

    @property
    def bootstrap(self) -> str:
        """`host:port,…` of all brokers."""
        return self._cluster.bootstrap

    @property
    def zookeeper_connect(self) -> str:
        """The connect string of its ZooKeeper."""
        return self._cluster.zookeeper_connect

    @property
    def brokers(self) -> list[BrokerProcess]:
        """The brokers; each can be killed, paused, stopped and started again."""
        return self._cluster.brokers

    def start(self) -> "Cluster":
        """Start everything; return when each broker serves and knows all others."""
        try:
            self._cluster.start()
        except BaseException:
            self._remove_directory()
            raise
        return self

    def stop(self) -> None:
        """End everything: in order when the data stays, at once when it goes."""
        faults, self._faults = self._faults, None
        if faults is not None:
            faults.stop()
        if self._is_temporary:
            self._cluster.kill()
        else:
            self._cluster.stop()
        self._remove_directory()

    def __enter__(self) -> "Cluster":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _remove_directory(self) -> None:
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


def _new_directory() -> Path:
    """Name a directory without making it: a cluster that is never started leaves nothing behind."""
    return Path(tempfile.gettempdir()) / f"kbroker-{uuid.uuid4().hex[:12]}"


def unique_topic_name(hint: str = "topic") -> str:
    """Return a legal topic name that nobody has: the hint's legal characters and a random end."""
    legal = "".join(character if character.isascii() and character.isalnum() else "-" for character in hint)
    return f"{legal[:200].strip('-') or 'topic'}-{uuid.uuid4().hex[:8]}"

"""Three brokers whose network belongs to the test, and ZooKeeper asked past them for what is true.

1 ──┐ CLIENTS ⇄ links ⇄ clients      `bootstrap`; each broker's own port, `brokers[n].port`, goes past the links
2 ──┤ BROKERS ⇄ links ⇄ brokers
3 ──┘ zookeeper.connect ⇄ links ⇄ ZooKeeper
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

import psutil

from kbroker.controller.znodes import CONTROLLER, broker_path
from kbroker.dev.free_ports import free_ports
from tests.faults.cluster_view import BROKERS, TIMEOUT, ClusterView, until
from tests.faults.links import CLIENTS, ZOOKEEPER, Links
from tests.fixtures.brokers import START_TIMEOUT, MakeBroker
from tests.fixtures.zookeeper import expire_session

__all__ = [
    "BROKERS",
    "CUT_LINKS",
    "PROPERTIES",
    "SHORT_SESSIONS",
    "SHORT_SESSION_MS",
    "TIMEOUT",
    "FaultCluster",
    "running",
    "until",
]

SESSION_MS = 12_000
"""Longer than a machine stands still; who is killed loses its session at once."""
SHORT_SESSION_MS = 2000
SHORT_SESSIONS = {"zookeeper.session.timeout.ms": str(SHORT_SESSION_MS)}
"""For who hangs or is cut off until its session expires."""
PROPERTIES = {
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "2000",
    # Answers take their time on a machine that is busy, longer than followers may lag behind.
    "replica.socket.timeout.ms": "15000",
    "controller.socket.timeout.ms": "15000",
    "controlled.shutdown.retry.backoff.ms": "300",
    "auto.create.topics.enable": "false",
    "log.segment.bytes": "250000",
    "replica.high.watermark.checkpoint.interval.ms": "500",
}
CUT_LINKS = {"replica.socket.timeout.ms": "2500", "controller.socket.timeout.ms": "2500"}
"""For links that are cut: a connection that a cut keeps silent is given up after this time."""


class FaultCluster(ClusterView):
    """Brokers 1 to 3, running; the test breaks what it likes and calls `mend` in the end."""

    def __init__(self, make_broker: MakeBroker, connect_string: str) -> None:
        super().__init__(connect_string)
        self.links = Links()
        self._make_broker = make_broker
        self.paused: set[int] = set()
        self._client_ports: dict[int, int] = {}

    @property
    def bootstrap(self) -> str:
        """`host:port,…` of all brokers, for clients, through the links."""
        return ",".join(f"127.0.0.1:{port}" for port in self._client_ports.values())

    # -- from start to end --------------------------------------------------------------------------------------

    def start(
        self,
        properties: Mapping[str, str],
        launchers: Mapping[int, Sequence[str]],
        own: Mapping[int, Mapping[str, str]],
    ) -> FaultCluster:
        """Start the brokers, and return when each knows all; `own` are the properties of single brokers."""
        self.links.nodes |= {ZOOKEEPER, *BROKERS}
        for broker_id in BROKERS:
            launcher = launchers.get(broker_id, ())
            self.start_broker(broker_id, {**properties, **own.get(broker_id, {})}, launcher)
        for broker in self.brokers.values():
            broker.wait_until_ready(START_TIMEOUT)
        self.kazoo.start(timeout=START_TIMEOUT)
        return self

    def start_broker(self, broker_id: int, properties: Mapping[str, str], launcher: Sequence[str]) -> None:
        """Start a broker for the first time, without waiting for it."""
        clients, brokers = free_ports(2)
        self._client_ports[broker_id] = outside = self.links.listen(broker_id, "127.0.0.1", clients, CLIENTS)
        inside = self.links.listen(broker_id, "127.0.0.1", brokers, self._owners)
        hosts, _, chroot = self.connect_string.partition("/")
        host, _, port = hosts.split(",")[0].partition(":")
        zookeeper = self.links.listen(ZOOKEEPER, host, int(port or 2181), broker_id)
        self.brokers[broker_id] = self._make_broker(
            broker_id,
            properties={
                **PROPERTIES,
                "listeners": f"CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{brokers}",
                "advertised.listeners": f"CLIENTS://127.0.0.1:{outside},BROKERS://127.0.0.1:{inside}",
                **properties,
            },
            zookeeper_connect=f"127.0.0.1:{zookeeper}/{chroot}",
            port=clients,
            launcher=launcher,
            wait=False,
        )

    def close(self) -> None:
        """End everything at once; the brokers end with their fixture."""
        for broker in self.brokers.values():
            broker.kill()
        self.links.close()
        self.kazoo.stop()
        self.kazoo.close()

    def mend(self) -> None:
        """Repair what the test broke: links, brokers that are paused or gone. Returns when all serve."""
        self.links.heal()
        for broker_id in sorted(self.paused):
            self.resume(broker_id)
        for broker in self.brokers.values():
            if not broker.is_running:
                broker.start()
        for broker in self.brokers.values():
            broker.wait_until_ready(TIMEOUT)

    def kill(self, *broker_ids: int) -> None:
        """End brokers at once (SIGKILL), all of them together, and then their sessions."""
        self.wait_for_traffic()
        for broker_id in broker_ids:
            self.paused.discard(broker_id)
            self.brokers[broker_id].kill()
        for broker_id in broker_ids:
            self.expire(broker_id)

    def expire(self, broker_id: int) -> None:
        """End the session of a broker's registration."""
        expire_session(self.connect_string, broker_path(broker_id))

    def hand_the_controller_to(self, *broker_ids: int) -> int:
        """Make one of these brokers the controller, and return which, by ending the sessions of others that are."""
        deadline = time.monotonic() + TIMEOUT
        while (controller := self.controller()) not in broker_ids:
            assert time.monotonic() < deadline, controller
            if controller != -1:
                expire_session(self.connect_string, CONTROLLER)
            time.sleep(0.05)
        for broker_id in BROKERS:
            until(lambda broker_id=broker_id: self.broker_epoch(broker_id) != -1, "all are registered")  # type: ignore[misc]
        return controller

    def pause(self, broker_id: int) -> None:
        """Make a broker hang (SIGSTOP)."""
        self.wait_for_traffic()
        self.brokers[broker_id].pause()
        self.paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Let it go on."""
        self.paused.discard(broker_id)
        self.brokers[broker_id].resume()

    def _owners(self, ports: Collection[int]) -> dict[int, int]:
        """The brokers whose processes have connections from those ports."""
        found: dict[int, int] = {}
        for broker_id, broker in list(self.brokers.items()):
            if broker.is_running:
                with contextlib.suppress(psutil.Error, AssertionError):  # it ends meanwhile
                    connections = psutil.Process(broker.pid).net_connections("tcp")
                    found.update((each.laddr.port, broker_id) for each in connections if each.laddr.port in ports)
        return found


@contextlib.contextmanager
def running(cluster: FaultCluster) -> Iterator[FaultCluster]:
    """Close the cluster in the end, whatever happens."""
    try:
        yield cluster
    finally:
        cluster.close()

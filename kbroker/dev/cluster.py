"""A whole cluster on one machine: ZooKeeper (a real one, the stand-in, or the user's) and N brokers, child processes.

    DIR/.lock                            held while the cluster runs
    DIR/zookeeper/                       see zookeepers.py; absent with a ZooKeeper of the user's
    DIR/secure/                          see secured.py; only of a secured cluster
    DIR/broker-1/ … DIR/broker-N/        see broker_process.py

`DevCluster` is the cluster as an object; run.py lives as `kbroker dev`.
"""

import fcntl
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kbroker.dev.broker_process import BrokerFailed, BrokerProcess
from kbroker.dev.free_ports import free_ports, is_port_free
from kbroker.dev.secured import Secured
from kbroker.dev.stand_in_zookeeper import StandInZooKeeper
from kbroker.dev.zookeepers import EMBEDDED, KINDS, STAND_IN, OwnZooKeeper, own_zookeeper

if TYPE_CHECKING:
    from kbroker.client.security import Security

FIRST_BROKER_ID = 1
FIRST_METRICS_PORT = 9404
POLL_SECONDS = 0.01
HIGHEST_PORT = 65_535
MAX_ANSWER_BYTES = 16 << 20
MOST_COPIES = 3
"""Of the internal topics."""


class DevClusterError(RuntimeError):
    """The cluster cannot run: the message says why and what to do."""


class StopRequested(Exception):
    """A signal asked for the end while the cluster was starting."""


class DevCluster:
    """ZooKeeper and brokers, from `start` to `stop`; usable as a context manager."""

    def __init__(
        self,
        data_dir: Path | str,
        *,
        brokers: int = 1,
        port: int = 0,
        zookeeper: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        metrics: bool = False,
        secure: bool = False,
    ) -> None:
        """Describe the cluster; nothing runs yet.

        `port` is the first broker's, the others follow it; 0 picks free ones. `zookeeper` is the connect string of one
        that runs, or which to run: "stand-in", "embedded"; None: the one that suits (zookeepers.py). `properties` go to
        each broker and overrule what the cluster sets. `timeout`: for the start.
        `metrics` are served on ports from 9404 on, or on free ones as the brokers are. `secure`: with TLS, logins and
        access rules; needs cryptography.
        """
        self.data_dir = Path(data_dir).absolute()
        self.timeout = timeout
        self._wanted_zookeeper = zookeeper if zookeeper in KINDS else None
        self._external_zookeeper = None if zookeeper in KINDS else zookeeper
        self._requested_port = port
        self._with_metrics = metrics
        self._broker_count = brokers
        self.secured = Secured(self.data_dir / "secure") if secure else None
        """Certificates and users; None: everybody may do everything."""
        self._properties = dict(properties or {})
        self._stop_requested = False
        self._lock: IO[bytes] | None = None
        self.zookeeper: OwnZooKeeper | None = None
        """None when the user gave one, and before the start."""
        self.brokers: list[BrokerProcess] = []

    @property
    def bootstrap(self) -> str:
        """`host:port,…` of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def zookeeper_connect(self) -> str:
        """The `zookeeper.connect` of the brokers."""
        if self._external_zookeeper is not None:
            return self._external_zookeeper
        assert self.zookeeper is not None, "the cluster is not started"
        return self.zookeeper.connect_string

    @property
    def zookeeper_kind(self) -> str | None:
        """Which ZooKeeper runs: "stand-in" or "embedded"; None for the user's own."""
        if self.zookeeper is None:
            return None
        return STAND_IN if isinstance(self.zookeeper, StandInZooKeeper) else EMBEDDED

    @property
    def metrics_addresses(self) -> list[str]:
        """Where the brokers serve their metrics."""
        return [str(address) for broker in self.brokers for address in broker.ready_info().get("metrics", [])]

    def broker(self, broker_id: int) -> BrokerProcess:
        """The broker of that id; KeyError when there is none."""
        for broker in self.brokers:
            if broker.broker_id == broker_id:
                return broker
        raise KeyError(broker_id)

    def start(self) -> "DevCluster":
        """Start everything; return when each broker serves and knows all others.

        Raises DevClusterError, EmbeddedZooKeeperError, StandInError or BrokerFailed, with nothing left running.
        """
        deadline = time.monotonic() + self.timeout
        try:
            self._take_directory()
            ports = self._choose_ports()
            if self._external_zookeeper is None:
                self.zookeeper = own_zookeeper(self.data_dir / "zookeeper", self._wanted_zookeeper)
                self._begin_zookeeper(self.zookeeper)
            if self.secured is not None:
                self._prepare(self.secured, deadline)
            self.brokers = [self._make_broker(index, port) for index, port in enumerate(ports)]
            for broker in self.brokers:
                broker.start()
            if isinstance(self.zookeeper, StandInZooKeeper):
                self.zookeeper.wait_until_serving(self.timeout)
            self._wait_until_ready(deadline)
            if self.secured is not None:
                self.secured.write_settings(self.bootstrap)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, timeout: float = 30.0) -> None:
        """End the brokers one after the other, by controlled shutdown, then ZooKeeper. All data stays."""
        for broker in reversed(self.brokers):
            broker.stop(timeout)
        self._end_zookeeper()

    def kill(self) -> None:
        """End everything at once."""
        for broker in self.brokers:
            broker.kill()
        self._end_zookeeper()

    def request_stop(self) -> None:
        """Make a `start` under way raise StopRequested; safe to call from a signal handler."""
        self._stop_requested = True

    def failure(self) -> str | None:
        """Say which child has ended by itself, and how; None while all run."""
        for broker in self.brokers:
            if not broker.is_running:
                return broker.why_it_ended()
        if self.zookeeper is not None and not self.zookeeper.is_running:
            return f"{self.zookeeper.name} ended: see {self.zookeeper.log_file}"
        return None

    def description(self) -> dict[str, Any]:
        """What the ready file says."""
        return {
            "bootstrap": self.bootstrap,
            "zookeeper": self.zookeeper_connect,
            "zookeeper_kind": self.zookeeper_kind,
            "secure": None if self.secured is None else str(self.secured.folder),
            "brokers": [
                {
                    "id": broker.broker_id,
                    "port": broker.port,
                    "pid": broker.pid,
                    "log_dirs": [str(path) for path in broker.log_dirs],
                    "metrics": broker.ready_info().get("metrics", []),
                }
                for broker in self.brokers
            ],
        }

    def __enter__(self) -> "DevCluster":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _take_directory(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._lock = (self.data_dir / ".lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DevClusterError(
                f"another cluster runs on {self.data_dir}: end it first, or choose another --data"
            ) from None
        except OSError as error:
            raise DevClusterError(f"cannot write to the data directory {self.data_dir}: {error.strerror}") from None

    def _begin_zookeeper(self, zookeeper: OwnZooKeeper) -> None:
        """The brokers need not wait for the stand-in: who connects is served as soon as it can."""
        if isinstance(zookeeper, StandInZooKeeper):
            zookeeper.begin()
        else:
            zookeeper.start(self.timeout)

    def _prepare(self, secured: Secured, deadline: float) -> None:
        """Certificates, users and rules are there before the first broker is."""
        from kbroker.controller.znode_operations import ZooKeeperError
        from kbroker.security.stores import StoreError

        try:
            secured.prepare(self.zookeeper_connect, max(1, int(1000 * (deadline - time.monotonic()))))
        except (StoreError, ZooKeeperError) as error:
            raise DevClusterError(f"the cluster cannot be secured: {error}") from error
        except (OSError, ValueError) as error:
            raise DevClusterError(f"the files in {secured.folder} cannot be used: {error}") from error

    def _choose_ports(self) -> list[int]:
        if self._requested_port == 0:
            return free_ports(self._broker_count)
        ports = list(range(self._requested_port, self._requested_port + self._broker_count))
        if ports[-1] > HIGHEST_PORT:
            raise DevClusterError(
                f"{self._broker_count} brokers from port {ports[0]} on need ports above {HIGHEST_PORT}"
            )
        for port in ports:
            if not is_port_free(port):
                raise DevClusterError(
                    f"port {port} on 127.0.0.1 is taken: choose another with --port, or 0 for free ones"
                )
        return ports

    def _make_broker(self, index: int, port: int) -> BrokerProcess:
        broker_id = FIRST_BROKER_ID + index
        copies = min(MOST_COPIES, self._broker_count)
        properties = {
            "zookeeper.connect": self.zookeeper_connect,
            "offsets.topic.replication.factor": str(copies),
            "transaction.state.log.replication.factor": str(copies),
            "transaction.state.log.min.isr": str((copies + 1) // 2),
            "group.initial.rebalance.delay.ms": "0",
            "kbroker.new.cluster.transaction.version": "2",
            # After a kill -9 of the whole cluster, the next start waits for the dead brokers' sessions to end.
            "zookeeper.session.timeout.ms": "6000",
        }
        if self.zookeeper_kind == STAND_IN:
            properties["kbroker.allow.stand.in.zookeeper"] = "true"
        if self._with_metrics:
            port_of_metrics = FIRST_METRICS_PORT + index if self._requested_port else 0
            properties["metrics.listeners"] = f"HTTP://127.0.0.1:{port_of_metrics}"
        if self.secured is not None:
            properties |= self.secured.broker_properties(port)
        properties.update(self._properties)
        return BrokerProcess(broker_id, self.data_dir / f"broker-{broker_id}", port, properties)

    def _wait_until_ready(self, deadline: float) -> None:
        everybody = {broker.broker_id for broker in self.brokers}
        for broker in self.brokers:
            while not (broker.is_ready and self._knows(broker, everybody)):
                if self._stop_requested:
                    raise StopRequested
                if (failure := self.failure()) is not None:
                    raise BrokerFailed(failure)
                if time.monotonic() > deadline:
                    raise DevClusterError(
                        f"broker {broker.broker_id} was not ready within {self.timeout:g} s: see {broker.log_file}"
                    )
                time.sleep(POLL_SECONDS)

    def _knows(self, broker: BrokerProcess, everybody: set[int]) -> bool:
        # A broker's ready file says that it knows itself; with one broker that is all there is to know.
        if len(everybody) == 1:
            return True
        security = None if self.secured is None else self.secured.client_security()
        return everybody <= known_brokers("127.0.0.1", broker.port, security=security)

    def _end_zookeeper(self) -> None:
        if self.zookeeper is not None:
            self.zookeeper.stop()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def known_brokers(host: str, port: int, timeout: float = 5.0, security: "Security | None" = None) -> set[int]:
    """Ask a broker which brokers it knows; empty when it doesn't answer."""
    if security is not None:
        return _known_to_a_client(host, port, timeout, security)
    from kbroker.protocol.headers import decode_response, encode_request
    from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse

    version = 9
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            for part in encode_request(request, version, 1, "kbroker-dev"):
                assert isinstance(part, bytes | bytearray | memoryview)
                connection.sendall(part)
            size = int.from_bytes(_receive(connection, 4))
            if not 0 < size <= MAX_ANSWER_BYTES:
                return set()
            _, response = decode_response(_receive(connection, size), MetadataResponse, version)
    except OSError:
        return set()
    return {broker.node_id for broker in response.brokers}


def _known_to_a_client(host: str, port: int, timeout: float, security: "Security") -> set[int]:
    """As a client that logs in is told; clients take a while to load, and others need none."""
    from kbroker.client.plain_connection import PlainConnection
    from kbroker.protocol.messages.metadata import MetadataRequest

    try:
        connection = PlainConnection(host, port, client_id="kbroker-dev", timeout=timeout, security=security)
    except OSError:
        return set()
    try:
        answer = connection.request(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return {broker.node_id for broker in answer.brokers}
    except OSError:
        return set()
    finally:
        connection.close()


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts += part
    return bytes(parts)

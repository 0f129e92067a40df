"""`kbroker dev`: a cluster that lives until a signal, or until its last broker or ZooKeeper has ended.

Of a broker that ends before, it tells how, and what starts it again; the others go on.
"""

import contextlib
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from kbroker.dev.broker_process import BrokerFailed, BrokerProcess
from kbroker.dev.child_process import ChildProcess, start_child
from kbroker.dev.cluster import DevCluster, DevClusterError, StopRequested
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeperError
from kbroker.dev.stand_in_zookeeper import StandInError
from kbroker.dev.zookeepers import EMBEDDED, STAND_IN
from kbroker.stop_signals import StopRequests, stop_signals

ZOOKEEPERS = {None: "ZooKeeper", EMBEDDED: "embedded ZooKeeper", STAND_IN: "stand-in for ZooKeeper"}
WATCH_SECONDS = 0.2
STOP_LIMIT_S = 20.0


def run(cluster: DevCluster, ready_file: Path | None = None, companion: Sequence[str] = ()) -> int:
    """Run the cluster until a signal that stops it (0), or until a part of it fails (1). Must run in the main thread.

    `companion`: a command that runs beside it, told the brokers in $KBROKER_BOOTSTRAP; nothing waits for it.
    """
    with _stop_signals(cluster) as signals:
        started_at = time.monotonic()
        try:
            if ready_file is not None:
                ready_file.unlink(missing_ok=True)
            cluster.start()
            if ready_file is not None:
                write_atomically(ready_file, json.dumps(cluster.description()) + "\n")
        except StopRequested:
            return 0
        except (DevClusterError, EmbeddedZooKeeperError, StandInError, BrokerFailed) as error:
            return fail(str(error))
        except OSError as error:
            cluster.kill()
            return fail(f"cannot write {error.filename}: {error.strerror}")
        seconds = time.monotonic() - started_at
        print(
            f"kbroker serves at {cluster.bootstrap} after {seconds:.1f} s; "
            f"{ZOOKEEPERS[cluster.zookeeper_kind]} at {cluster.zookeeper_connect}, "
            f"data in {cluster.data_dir}; Ctrl-C stops it",
            flush=True,
        )
        if cluster.metrics_addresses:
            print(f"metrics at {', '.join(cluster.metrics_addresses)}", flush=True)
        if cluster.secured is not None:
            print(f"\n{cluster.secured.description(cluster.bootstrap)}", end="", flush=True)
        beside = None
        if companion and not signals:
            beside = _start_beside(companion, cluster.bootstrap)
        watch = Watch(cluster)
        failure = None
        while not signals and failure is None:
            time.sleep(WATCH_SECONDS)  # a signal cuts it short only on the next round: that is soon enough
            failure = watch.look()
        if beside is not None:
            beside.stop(STOP_LIMIT_S)
        watch.stop_what_was_started_by_hand()
        cluster.stop()
        return 0 if failure is None or signals else fail(failure)


def _start_beside(command: Sequence[str], bootstrap: str) -> ChildProcess:
    """Start a command that shall reach this cluster, whatever the user's own settings say."""
    environment = {name: value for name, value in os.environ.items() if name != "KBROKER_PROFILE"}
    return start_child(command, output=sys.stdout.fileno(), environment={**environment, "KBROKER_BOOTSTRAP": bootstrap})


class Watch:
    """Tells which brokers end and which serve again: the others go on, for that is what several are for."""

    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster
        self._ended: set[int] = set()
        self._by_hand: dict[int, int] = {}
        """Broker id -> pid, of the brokers that somebody started again."""

    def look(self) -> str | None:
        """Tell what has changed; return why the cluster cannot go on, None while it can."""
        cluster = self._cluster
        if cluster.zookeeper is not None and not cluster.zookeeper.is_running:
            return f"{cluster.zookeeper.name} ended: see {cluster.zookeeper.log_file}"
        for broker in cluster.brokers:
            if not broker.is_running:
                self._look_at(broker)
        if len(self._ended) < len(cluster.brokers):
            return None
        return cluster.brokers[0].why_it_ended() if len(self._ended) == 1 else "all brokers have ended"

    def _look_at(self, broker: BrokerProcess) -> None:
        broker_id = broker.broker_id
        pid = broker.started_by_hand()
        if pid is None and broker_id not in self._ended:
            was_ours = self._by_hand.pop(broker_id, None) is None
            how = broker.how_it_ended() if was_ours else f"broker {broker_id} ended"
            broker.forget_readiness()
            self._ended.add(broker_id)
            left = len(self._cluster.brokers) - len(self._ended)
            if left:
                tell(f"{how} (its log: {broker.log_file}); {left} of {len(self._cluster.brokers)} brokers go on")
                tell(f"start broker {broker_id} again with: {shlex.join(broker.start_command)}")
        elif pid is not None and broker_id in self._ended:
            self._ended.discard(broker_id)
            self._by_hand[broker_id] = pid
            tell(f"broker {broker_id} serves again, with pid {pid}")

    def stop_what_was_started_by_hand(self) -> None:
        """End the brokers that would otherwise stay behind without a ZooKeeper; waits for them, within a limit."""
        started = [self._cluster.broker(broker_id) for broker_id in self._by_hand]
        for broker in started:
            if (pid := broker.started_by_hand()) is not None:
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_LIMIT_S
        while any(broker.started_by_hand() for broker in started) and time.monotonic() < deadline:
            time.sleep(WATCH_SECONDS)


@contextlib.contextmanager
def _stop_signals(cluster: DevCluster) -> Iterator[StopRequests]:
    """Signals that stop the cluster; who asks twice ends everything at once."""
    requests = StopRequests()

    def on_signal(number: int, frame: FrameType | None) -> None:
        insists = requests.add(number)
        cluster.request_stop()
        if insists:
            # Children end with their parent.
            os._exit(128 + number)

    before = {number: signal.signal(number, on_signal) for number in stop_signals()}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def write_atomically(path: Path, text: str) -> None:
    """Write a small file so that a reader sees all of it or nothing."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)


def fail(reason: str) -> int:
    """Tell it; return the exit status."""
    tell(reason)
    return 1


def tell(text: str) -> None:
    """Write a line to standard error."""
    print(f"kbroker dev: {text}", file=sys.stderr, flush=True)

"""A cluster to look at: flights without end, a group that reads them, a broker that is killed now and then, the page.

    python -m examples.demo            (or `make demo`; Ctrl-C ends it)

Three brokers and a ZooKeeper run on free ports in a temporary folder. The flights of 2013 are sent over and over as if
they left now. Two consumers share them; one of them stays away for a while now and then, so that the group rebalances.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Iterator
from typing import Any

from examples import flights_data
from kbroker import Admin, Consumer, ErrorCode, KafkaError, Producer
from kbroker.dev.child_process import ChildProcess, start_child
from kbroker.dev.cluster import DevCluster

TOPIC = "flights"
GROUP = "departures-board"
PER_SECOND = 200
PORTION = 50
KILL_EVERY_S = 60.0
AWAY_S = 10.0
STOP_LIMIT_S = 10.0


def flights_without_end() -> Iterator[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
    """Give key, value and headers of flights, year after year."""
    table = flights_data.flights()
    while True:
        for batch in table.to_batches(10_000):
            for row in batch.to_pylist():
                value = {name: each.isoformat() if hasattr(each, "isoformat") else each for name, each in row.items()}
                yield row["carrier"].encode(), json.dumps(value).encode(), [("origin", row["origin"].encode())]


def feed(bootstrap: str, stop: threading.Event) -> None:
    """Send flights, so many a second, whatever becomes of brokers."""
    flights = flights_without_end()
    with Producer(bootstrap, compression="lz4") as producer:
        while not stop.wait(PORTION / PER_SECOND):
            for _ in range(PORTION):
                key, value, headers = next(flights)
                producer.send(TOPIC, key=key, value=value, headers=headers)


def read(bootstrap: str, number: int, stop: threading.Event) -> None:
    """Read as a member of the group; the second one leaves now and then."""
    while not stop.is_set():
        with Consumer(bootstrap, group_id=GROUP, client_id=f"board-{number}", auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            until = time.monotonic() + 45 * number
            while not stop.is_set() and (number == 1 or time.monotonic() < until):
                consumer.poll(0.5)
        stop.wait(15)


def break_brokers(cluster: DevCluster, stop: threading.Event) -> None:
    """Kill one broker after the other, and start it again."""
    number = 0
    while not stop.wait(KILL_EVERY_S):
        broker = cluster.brokers[number % len(cluster.brokers)]
        number += 1
        broker.kill()
        print(f"broker {broker.broker_id} was killed; it comes back in {AWAY_S:.0f} s", flush=True)
        stop.wait(AWAY_S)
        if not stop.is_set():
            broker.restart(60)
            print(f"broker {broker.broker_id} serves again", flush=True)


def make_topic(bootstrap: str) -> None:
    """Make the topic, three copies of each partition."""
    with Admin(bootstrap) as admin:
        try:
            admin.create_topic(TOPIC, 12, 3, {"retention.ms": "3600000", "min.insync.replicas": "2"})
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def start_page(bootstrap: str, port: int) -> ChildProcess:
    """Serve the page in a process of its own; it says where."""
    command = [sys.executable, "-m", "kbroker", "page", "-b", bootstrap, "--allow-writes"]
    return start_child([*command, "--listen", f"127.0.0.1:{port}"], output=sys.stdout.fileno())


def run(port: int, seconds: float | None, *, opens: bool) -> None:
    """Run until Ctrl-C, or for some seconds."""
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="kbroker-demo-") as folder:
        properties = {"zookeeper.session.timeout.ms": "6000", "offsets.topic.num.partitions": "6"}
        with DevCluster(folder, brokers=3, zookeeper="stand-in", properties=properties) as cluster:
            make_topic(cluster.bootstrap)
            jobs: list[tuple[Any, ...]] = [(feed, cluster.bootstrap), (break_brokers, cluster)]
            jobs += [(read, cluster.bootstrap, number) for number in (1, 2)]
            threads = [threading.Thread(target=job, args=(*given, stop)) for job, *given in jobs]
            page = start_page(cluster.bootstrap, port)
            try:
                for thread in threads:
                    thread.start()
                if opens:
                    webbrowser.open(f"http://127.0.0.1:{port}")
                stop.wait(seconds)
            except KeyboardInterrupt:
                print("ending", flush=True)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
                page.stop(STOP_LIMIT_S)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--port", type=int, default=8080, help="of the page")
    parser.add_argument("--seconds", type=float, help="end after so long; default: Ctrl-C ends it")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    arguments = parser.parse_args()
    try:
        run(arguments.port, arguments.seconds, opens=arguments.open)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except (KafkaError, OSError, subprocess.SubprocessError) as error:
        raise SystemExit(f"the demo cannot go on: {error}") from error


if __name__ == "__main__":
    main()

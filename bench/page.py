"""The page's views over HTTP on a cluster of very many topics: how long each takes, first and again, and its memory.

python -m bench page
"""

from __future__ import annotations

import http.client
import signal
import sys
import time
from pathlib import Path

import psutil

from kbroker import Admin, Producer
from kbroker.client.types import NewTopic, TopicPartition
from kbroker.dev.child_process import start_child
from kbroker.dev.free_ports import free_ports
from kbroker.testing import Cluster

TOPICS, PARTITIONS, AT_ONCE = 10_000, 1, 1_000
GROUPS, READS = 200, 50
LOOKS = 15
FORGOTTEN_S = 2.2
"""After so long a view asks the cluster anew for its topics."""
LIMIT_S = 60.0
VIEWS = {
    "overview": "/",
    "list of topics": "/topics",
    "list by size": "/topics?sort=size",
    "list, filtered": "/topics?q=topic-0999",
    "map": "/map",
    "one topic": "/topics/topic-00042",
    "its groups": "/topics/topic-00042/groups",
    "list of groups": "/groups",
    "one group": "/group?id=group-007",
}


def fill(bootstrap: str) -> None:
    """Make topics, records in some of them, and groups that read some."""
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        for first in range(0, TOPICS, AT_ONCE):
            names = (f"topic-{number:05}" for number in range(first, first + AT_ONCE))
            admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])
        for number in range(READS):
            producer.send(f"topic-{number:05}", b"x" * 100)
        producer.flush()
        for number in range(GROUPS):
            places = {TopicPartition(f"topic-{topic:05}", 0): 0 for topic in range(number % 40, READS)}
            admin.alter_group_offsets(f"group-{number:03}", places)


def look(port: int, path: str) -> float:
    """Return the seconds until all of a view is there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    began = time.perf_counter()
    connection.request("GET", path, headers={"accept": "text/html"})
    answer = connection.getresponse()
    answer.read()
    took = time.perf_counter() - began
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{path} is answered {answer.status}")
    return took


def until_it_serves(port: int) -> None:
    """Wait for the page."""
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            look(port, "/")
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def tell(name: str, process: psutil.Process, port: int, path: str) -> None:
    """Print how long a view takes whose facts are old, and right after."""
    anew, again = [], []
    before = process.cpu_times()
    for _ in range(LOOKS):
        time.sleep(FORGOTTEN_S)
        anew.append(look(port, path))
        again.append(look(port, path))
    after = process.cpu_times()
    cpu = (after.user + after.system - before.user - before.system) / LOOKS
    anew.sort()
    again.sort()
    print(
        f"{name:16} asked anew: median {anew[LOOKS // 2] * 1e3:5.0f} ms, worst {anew[-1] * 1e3:5.0f};"
        f" again: median {again[LOOKS // 2] * 1e3:5.0f} ms, worst {again[-1] * 1e3:5.0f};"
        f" {cpu * 1e3:4.0f} ms of CPU for the two and what goes on beside",
        flush=True,
    )


def main() -> None:
    """All figures."""
    (port,) = free_ports(1)
    with Cluster() as cluster:
        began = time.monotonic()
        fill(cluster.bootstrap)
        print(f"{TOPICS:,} topics and {GROUPS} groups made in {time.monotonic() - began:.1f} s", flush=True)
        command = [str(Path(sys.executable).with_name("kbroker")), "page", "-b", cluster.bootstrap]
        page = start_child([*command, "--listen", f"127.0.0.1:{port}"])
        try:
            process = psutil.Process(page.pid)
            until_it_serves(port)
            for name, path in VIEWS.items():
                tell(name, process, port, path)
            print(f"the page's process: {process.memory_info().rss / 1e6:.0f} MB resident")
        finally:
            page.send_signal(signal.SIGTERM)
            page.wait(LIMIT_S)


if __name__ == "__main__":
    main()

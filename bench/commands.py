"""What the command line's lists cost: CPU seconds of the whole process, on a cluster with 1,000 topics.

python -m bench commands
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

from kbroker import Admin, Producer
from kbroker.client.types import AccessRule, OffsetAndMetadata, ResourceType, TopicPartition
from kbroker.security.acls import AclOperation, AclResource
from kbroker.testing import Cluster

TOPICS = 1_000
PARTITIONS = 3
OTHERS = 200
"""Groups, access rules, limits, and topics with settings."""
RUNS = 10
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LISTS = (
    "topic list",
    "topic list --format json",
    "topic list --format yaml",
    "topic describe",
    "group list",
    "group lag",
    "acl list",
    "user list",
    "quota list",
    "transaction list",
    "cluster info",
    "log-dir list",
    "log-dir describe",
    "token describe",
    "config list topic",
)


def fill(bootstrap: str) -> None:
    """Make what there is to list."""
    with Admin(bootstrap) as admin:
        for number in range(TOPICS):
            admin.create_topic(f"topic-{number:04d}", PARTITIONS, 1)
        for number in range(OTHERS):
            partition = TopicPartition(f"topic-{number:04d}", 0)
            admin.alter_group_offsets(f"group-{number:03d}", {partition: OffsetAndMetadata(0)})
        admin.create_acls(
            AccessRule(AclResource.TOPIC, f"topic-{number:04d}", f"User:user-{number}", AclOperation.READ)
            for number in range(OTHERS)
        )
        for number in range(OTHERS):
            admin.alter_client_quotas({"user": f"user-{number}"}, {"producer_byte_rate": 1e6})
            admin.alter_configs(ResourceType.TOPIC, f"topic-{number:04d}", {"retention.ms": "1000000"})
    with Producer(bootstrap, transactional_id="bench") as producer, producer.transaction():
        producer.send("topic-0000", b"value")


def command(bootstrap: str, words: str) -> tuple[float, float]:
    """Run a command in a process of its own; returns its CPU seconds and how long it took."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "kbroker", *words.split()],
        env={**os.environ, "KBROKER_BOOTSTRAP": bootstrap},
        capture_output=True,
        timeout=120,
        check="token" not in words,  # which a cluster without log-ins refuses
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall


def main() -> None:
    """Print the best and the middle of each."""
    with Cluster(properties=SETTINGS) as cluster:
        fill(cluster.bootstrap)
        print(f"{TOPICS:,} topics of {PARTITIONS} partitions, {OTHERS} groups; {RUNS} runs of each")
        for words in LISTS:
            runs = sorted(command(cluster.bootstrap, words) for _ in range(RUNS))
            walls = sorted(wall for _, wall in runs)
            print(
                f"kbroker {words:27} CPU best {runs[0][0]:.3f} s, median {runs[RUNS // 2][0]:.3f} s;"
                f" wall best {walls[0]:.3f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()

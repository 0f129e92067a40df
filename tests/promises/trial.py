"""Judges the brokers of this checkout from outside: three of them under `kbroker verify`, as a user has it.

    python -m tests.promises.trial --workload txn --nemesis kills --seconds 20 --seed 1

Exit status as of `kbroker verify`: 0 valid, 1 an anomaly, 2 nobody knows. The names of what was found are printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from kbroker import Admin
from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.cluster import DevCluster
from kbroker.verify.checker import EXIT_STATUS, judge_folder
from kbroker.verify.nemesis import Fault, Nemesis, make_nemesis
from kbroker.verify.proxy.exchange import PRODUCE
from kbroker.verify.proxy.faults import HoldRequest, LoseAnswer
from kbroker.verify.proxy.nemesis import ProxyNemesis
from kbroker.verify.runner import WORKLOADS, Plan, run_test

BROKERS = 3
NEMESES = ("none", "proxy", "kills", "tails", "retries")
CLIENTS = ("confluent", "kbroker")
IN_SYNC_S = 60.0
"""So long after all is healed every replica is in sync again."""
NOT_IN_SYNC = "replicas-stay-behind"
TAIL_S = 1.0
"""So long a leader is alone with its clients: shorter than its followers' sessions."""
PROPERTIES: Mapping[str, str] = {
    "zookeeper.session.timeout.ms": "3000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "log.segment.bytes": "1000000",
}


class Kills:
    """A nemesis that ends brokers at once, one or two of the three, and starts them again."""

    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster
        self._killed: list[BrokerProcess] = []

    def start(self, bootstrap: str) -> str:
        """Clients go straight to the cluster."""
        return bootstrap

    def inject(self, rng: random.Random) -> Fault:
        """Kill some."""
        self._killed = rng.sample(list(self._cluster.brokers), rng.choice((1, 1, 2)))
        for broker in self._killed:
            broker.kill()
        return Fault("kill", {"brokers": ", ".join(str(broker.broker_id) for broker in self._killed)})

    def heal(self) -> None:
        """Start them again."""
        for broker in self._killed:
            broker.start()
        for broker in self._killed:
            broker.wait_until_ready(60)
        self._killed = []

    def stop(self) -> None:
        """Heal."""
        self.heal()


class Tails(Kills):
    """A nemesis that leaves a leader alone with what it is sent, and kills it: it comes back with what nobody has."""

    def inject(self, rng: random.Random) -> Fault:
        """Stop two, kill the third, and let the two go on without it."""
        chosen = rng.choice(list(self._cluster.brokers))
        others = [each for each in self._cluster.brokers if each is not chosen]
        for each in others:
            each.pause()
        time.sleep(TAIL_S)
        chosen.kill()
        for each in others:
            each.resume()
        self._killed = [chosen]
        return Fault("tail", {"broker": str(chosen.broker_id)})


class Retries(ProxyNemesis):
    """A nemesis that loses answers to Produce, or lets it come late, after it was sent again: it is stored once."""

    def inject(self, rng: random.Random) -> Fault:
        """For all links, the next few times."""
        kind, times = rng.choice((LoseAnswer, HoldRequest)), rng.randint(3, 12)
        self.proxy.inject(kind(api_key=PRODUCE, times=times))
        return Fault(kind.__name__, {"times": times})


def is_in_sync(cluster: DevCluster) -> bool:
    """Whether all replicas are, soon after all is healed."""
    deadline = time.monotonic() + IN_SYNC_S
    with Admin(cluster.bootstrap) as admin:
        while True:
            topics = admin.describe_topics()
            if all(set(each.isr) == set(each.replicas) for topic in topics.values() for each in topic.partitions):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)


def nemesis_of(name: str, cluster: DevCluster, seed: int) -> Nemesis:
    """Return the nemesis of a name."""
    if name == "kills":
        return Kills(cluster)
    if name == "tails":
        return Tails(cluster)
    return Retries() if name == "retries" else make_nemesis(name, seed)


def main(arguments: Sequence[str]) -> int:
    """Run a workload, judge it, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="append")
    parser.add_argument("--nemesis", choices=NEMESES, default="none")
    parser.add_argument("--client", choices=CLIENTS, default="confluent")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        DevCluster(Path(folder) / "cluster", brokers=BROKERS, zookeeper="stand-in", properties=PROPERTIES) as cluster,
    ):
        plan = Plan(
            cluster.bootstrap,
            workload=chosen.workload,
            seconds=chosen.seconds,
            seed=chosen.seed,
            fault_seconds=2.0,
            final_seconds=30.0,
            replicas=BROKERS,
            client=chosen.client,
            keep_topics=True,
        )
        nemesis = nemesis_of(chosen.nemesis, cluster, chosen.seed)
        run_test(plan, Path(folder) / "trial", lambda text: print(text, file=sys.stderr), nemesis)
        judgement = judge_folder(Path(folder) / "trial")
        if not is_in_sync(cluster):
            print("anomaly", NOT_IN_SYNC)
            return 1
    print(judgement.verdict, *sorted({finding.name for finding in judgement.anomalies}), sep=" ")
    return EXIT_STATUS[judgement.verdict]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

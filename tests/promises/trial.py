"""Judges the brokers of this checkout from outside: three of them under `kbroker verify`, as a user has it.

    python -m tests.promises.trial --workload txn --nemesis kills --seconds 20 --seed 1

Exit status as of `kbroker verify`: 0 valid, 1 an anomaly, 2 nobody knows. The names of what was found are printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kbroker.dev.broker_process import BrokerProcess
from kbroker.dev.cluster import DevCluster
from kbroker.verify.checker import EXIT_STATUS, judge_folder
from kbroker.verify.nemesis import Fault, Nemesis, make_nemesis
from kbroker.verify.runner import WORKLOADS, Plan, run_test

BROKERS = 3
NEMESES = ("none", "proxy", "kills")
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


def main(arguments: Sequence[str]) -> int:
    """Run a workload, judge it, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="append")
    parser.add_argument("--nemesis", choices=NEMESES, default="none")
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
        )
        kills = chosen.nemesis == "kills"
        nemesis: Nemesis = Kills(cluster) if kills else make_nemesis(chosen.nemesis, chosen.seed)
        run_test(plan, Path(folder) / "trial", lambda text: print(text, file=sys.stderr), nemesis)
        judgement = judge_folder(Path(folder) / "trial")
    print(judgement.verdict, *sorted({finding.name for finding in judgement.anomalies}), sep=" ")
    return EXIT_STATUS[judgement.verdict]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Faults drawn at random from a seed, one on top of the other, under `kbroker verify`: it must find nothing.

$KBROKER_SOAK_MINUTES says for how long (`make soak`: 10) and $KBROKER_SOAK_SEED which faults: the seed is printed, and
the same seed draws the same faults, though never at quite the same moments; `make test` plays a round of one of them.
Each round draws a workload and its faults from a seed of its own: `make soak SEED=7 ROUND=12` begins with the twelfth
round of seed 7. The history of a round that fails stays, for `kbroker verify check`.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from kbroker.verify.checker import judge_folder
from kbroker.verify.report import report_text
from kbroker.verify.runner import WORKLOADS, Plan, run_test
from tests.faults.cluster import BROKERS, CUT_LINKS, SHORT_SESSIONS
from tests.faults.conftest import MakeFaultCluster
from tests.faults.nemesis import ClusterNemesis
from tests.faults.wrong_clock import WrongClock

IS_SOAK = "KBROKER_SOAK_MINUTES" in os.environ
MINUTES = float(os.environ.get("KBROKER_SOAK_MINUTES") or 0.3)
SEED = int(os.environ.get("KBROKER_SOAK_SEED") or (random.randrange(1_000_000) if IS_SOAK else 1))
FIRST_ROUND = int(os.environ.get("KBROKER_SOAK_ROUND") or 0)
ROUND_S = 40.0
FAULT_S = 2.0
FINAL_S = 60.0 if IS_SOAK else 180.0
LONGEST_ROUND_S = 400
CLIENTS = ("confluent", "kbroker")
PROPERTIES = {
    **SHORT_SESSIONS,
    **CUT_LINKS,
    # Disks are lost, too: with one copy of what its coordinator knows, a transaction would stay open for ever.
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}

pytestmark = pytest.mark.slow


@pytest.mark.timeout(60 * MINUTES + LONGEST_ROUND_S)
def test_no_promise_is_broken_by_any_row_of_faults(
    make_fault_cluster: MakeFaultCluster, own_zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    begun = time.monotonic()
    print(f"\n{MINUTES:g} minutes")
    clocks = {broker: WrongClock(tmp_path / f"clock-{broker}") for broker in BROKERS}
    cluster = make_fault_cluster(
        zookeeper_connect=f"{own_zookeeper.connect_string}/soak",
        properties=PROPERTIES,
        launchers={broker: clock.launcher for broker, clock in clocks.items()},
    )
    nemesis = ClusterNemesis(cluster, own_zookeeper, clocks)
    for number in itertools.count(FIRST_ROUND):
        print(f"make soak SEED={SEED} ROUND={number}", flush=True)
        play(cluster.bootstrap, nemesis, number, min(ROUND_S, 60 * MINUTES))
        if time.monotonic() - begun > 60 * MINUTES:
            break


def play(bootstrap: str, nemesis: ClusterNemesis, number: int, seconds: float) -> None:
    """One round: a workload under faults, everything mended, everything judged."""
    rng = random.Random(f"{SEED} {number}")
    plan = Plan(
        bootstrap,
        workload=rng.choice(sorted(WORKLOADS)),
        seconds=seconds,
        seed=rng.randrange(1_000_000),
        client=rng.choice(CLIENTS),
        fault_seconds=FAULT_S,
        final_seconds=FINAL_S,
    )
    folder = Path(tempfile.mkdtemp(prefix=f"kbroker-soak-{number}-"))
    run_test(plan, folder, lambda text: print(text, flush=True), nemesis)
    judgement = judge_folder(folder)
    assert judgement.verdict == "valid", f"{folder}\n{report_text(judgement)}"
    print(f"round {number}: {judgement.verdict}, {len(judgement.columns.operations)} operations", flush=True)
    shutil.rmtree(folder)

"""Faults drawn at random from a seed, one on top of the other, under load; the promises are checked after each round.

$KBROKER_SOAK_MINUTES says for how long (`make soak`: 10) and $KBROKER_SOAK_SEED which faults: the seed is printed, and
the same seed draws the same faults, though never at quite the same moments. Each round draws from a seed of its own:
`make soak SEED=7 ROUND=12` begins with the twelfth round of seed 7.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from pathlib import Path

import pytest

from kbroker import Admin
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from tests.faults.cluster import BROKERS, SHORT_SESSIONS, until
from tests.faults.conftest import MakeFaultCluster
from tests.faults.drawn import FAULTS, Arena
from tests.faults.load import ConfluentPatientWriter, Load, OurPatientWriter
from tests.faults.wrong_clock import WrongClock

MINUTES = float(os.environ.get("KBROKER_SOAK_MINUTES") or 0.3)
SEED = int(os.environ.get("KBROKER_SOAK_SEED") or random.randrange(1_000_000))
FIRST_ROUND = int(os.environ.get("KBROKER_SOAK_ROUND") or 0)
FAULTS_OF_A_ROUND = 6
LONGEST_ROUND_S = 300

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
        properties=SHORT_SESSIONS,
        launchers={broker: clock.launcher for broker, clock in clocks.items()},
    )
    for number in itertools.count(FIRST_ROUND):
        print(f"make soak SEED={SEED} ROUND={number}", flush=True)
        rng = random.Random(f"{SEED} {number}")
        play(Arena(cluster, own_zookeeper, clocks, f"round-{number}", rng), begun)
        if time.monotonic() - begun > 60 * MINUTES:
            break


def play(arena: Arena, begun: float) -> None:
    """One round: a topic of its own, a few faults, everything mended, everything checked."""
    cluster, topic, rng = arena.cluster, arena.topic, arena.rng
    cluster.create_topic(topic, [rng.choice(BROKERS) for _ in range(rng.randint(1, 4))])
    with Load(cluster, topic, (OurPatientWriter, ConfluentPatientWriter, ConfluentPatientWriter)) as load:
        for _ in range(FAULTS_OF_A_ROUND):
            what = rng.choice(FAULTS)(arena)
            print(f"{time.monotonic() - begun:6.1f} s  {topic}: {what}", flush=True)
            time.sleep(rng.choice((0.1, 0.5, 1.0, 3.0)))
        arena.mend()
        load.until_progress()
        load.finish_and_check()
        print(f"{time.monotonic() - begun:6.1f} s  {topic}: {load.acknowledged()} acknowledged, all well", flush=True)
    with Admin(cluster.bootstrap) as admin:
        admin.delete_topic(topic)
    until(lambda: not cluster.kazoo.exists(f"/brokers/topics/{topic}"), f"{topic} is deleted")

"""The checker finds every kind of lie: each is told to a workload of confluent-kafka's clients, and condemned by name.

`make lies` tells each of them to 20 seeds; in each run of the tests a few are told to one.
"""

import os
import random
from pathlib import Path

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.verify.checker import judge_folder
from kbroker.verify.proxy.lies import LIES, Lie
from kbroker.verify.proxy.proxy import Proxy
from kbroker.verify.runner import Plan, run_test

FOUND: dict[str, tuple[str, float, set[str]]] = {
    "drop": ("append", 0.1, {"lost-write", "unseen"}),
    "store-twice": ("append", 0.1, {"duplicate"}),
    "renumber": ("append", 0.1, {"inconsistent-offsets"}),
    "swap": ("append", 0.5, {"inconsistent-offsets"}),
    "answer-empty": ("append", 0.1, {"unseen", "lost-write"}),
    "strip-aborted": ("txn", 1.0, {"G1a"}),
    "beyond-stable": ("txn", 0.5, {"precommitted-read", "G1a"}),
    "commit-half": ("txn", 0.3, {"torn-transaction"}),
    "stale-commits": ("group", 1.0, {"stale-committed-offset"}),
}
"""Lie -> the workload it is told to, how often, and what it must be called."""
SEEDS = int(os.environ.get("KBROKER_LIES", "0"))
SECONDS = 4.0 if SEEDS else 1.5
MOST_TRIES = 4
"""On a busy machine there may be no occasion to lie; each try is twice as long as the one before."""
FEW = ("drop", "commit-half")
CASES = [(name, seed) for name in FOUND for seed in range(SEEDS)] or [(name, 1) for name in FEW]

pytestmark = pytest.mark.slow


def test_every_lie_is_expected_to_be_found() -> None:
    assert set(FOUND) == set(LIES)


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_lie_is_found_under_its_name(name: str, seed: int, broker: BrokerProcess, tmp_path: Path) -> None:
    workload, chance, names = FOUND[name]
    liar = LIES[name](random.Random(seed), chance)
    for number in range(MOST_TRIES):
        folder = tmp_path / str(number)
        listen_to(liar, workload, SECONDS * 2**number, seed, broker, folder)
        if liar.told:
            break
    assert liar.told, "it was never told"
    judgement = judge_folder(folder)
    found = {anomaly.name for anomaly in judgement.anomalies}
    assert found & names, f"{name} told {liar.told} times: {sorted(found)}: {judgement.reason}"


def listen_to(liar: Lie, workload: str, seconds: float, seed: int, broker: BrokerProcess, folder: Path) -> None:
    with Proxy(broker.bootstrap) as proxy:
        proxy.meddle(liar)
        plan = Plan(
            proxy.bootstrap,
            workload,
            seconds,
            seed,
            processes=4,
            topics=1,
            partitions=2,
            final_seconds=180,
            settings={"linger.ms": "0"},
        )
        run_test(plan, folder, lambda _: None)

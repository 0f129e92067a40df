"""Tests for kbroker.verify.checker: healthy histories yield nothing, and each edit of one is found under its name."""

import os
import random

import pytest

from kbroker.verify.anomalies import MEANINGS
from kbroker.verify.checker import ANOMALY, UNKNOWN, VALID, Settings, judge
from kbroker.verify.columns import columns_of
from tests.kbroker.verify.edits import EDITS
from tests.kbroker.verify.simulated import healthy

WORKLOADS = ("append", "txn", "group", "compact")
HISTORIES = int(os.environ.get("KBROKER_HISTORIES", "400"))
EDITED = max(HISTORIES // 20, 8)


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_healthy_histories_yield_no_anomaly(workload: str) -> None:
    for seed in range(HISTORIES // len(WORKLOADS)):
        judgement = judge(columns_of(healthy(seed, workload)), Settings(workload))
        assert judgement.verdict == VALID, f"seed {seed}: {judgement.reason}: {judgement.anomalies}"


@pytest.mark.parametrize("name", EDITS)
def test_one_edit_of_a_healthy_history_is_found_under_its_name(name: str) -> None:
    edit, workloads = EDITS[name]
    found = 0
    for seed in range(EDITED):
        workload = workloads[seed % len(workloads)]
        events = healthy(seed, workload)
        if not edit(events, random.Random(seed)):
            continue
        judgement = judge(columns_of(events), Settings(workload))
        names = {each.name for each in judgement.anomalies}
        assert name in names, f"seed {seed} of {workload}: {sorted(names)}"
        assert judgement.verdict == ANOMALY
        found += 1
    assert found >= EDITED // 4, f"only {found} of {EDITED} histories had room for it"


def test_every_anomaly_has_a_meaning_and_an_edit_that_shows_it() -> None:
    shown_by_others = {"G1c-process"}
    assert set(EDITS) | shown_by_others == set(MEANINGS)


def test_what_readers_of_uncommitted_records_must_expect_condemns_nobody() -> None:
    events = healthy(1, "txn")
    assert EDITS["G1a"][0](events, random.Random(1))
    judgement = judge(columns_of(events), Settings("txn", isolation="read_uncommitted"))
    assert judgement.verdict == VALID
    assert "G1a" in {each.name for each in judgement.allowed}


def test_nothing_is_known_where_nothing_was_acknowledged_or_read() -> None:
    assert judge(columns_of([]), Settings()).reason == "nothing was acknowledged"
    events = [event for event in healthy(1, "append") if event.f == "send"]
    assert judge(columns_of(events), Settings()).verdict in (ANOMALY, UNKNOWN)
    judgement = judge(columns_of(healthy(1, "append")), Settings(final_phase="no time"))
    assert (judgement.verdict, judgement.reason) == (UNKNOWN, "partitions were not read to their ends: no time")

"""Tests for kbroker.verify.runner: whole tests of a real broker, and of one of Apache Kafka's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.verify import runner
from kbroker.verify.checker import UNKNOWN, VALID, Judgement, judge_folder
from kbroker.verify.clients import PATIENT, UNDER_FAULTS, Limits
from kbroker.verify.confluent_client import ConfluentLibrary
from kbroker.verify.history import read_history
from kbroker.verify.runner import WORKLOADS, Plan, TrialFailed, run_test
from tests.fixtures.kafka import JavaBroker


def quick(bootstrap: str, workload: str, client: str = "confluent", nemesis: str = "none", seconds: float = 2) -> Plan:
    return Plan(
        bootstrap,
        workload,
        seconds,
        seed=3,
        nemesis=nemesis,
        client=client,
        processes=4,
        topics=1,
        partitions=2,
        fault_seconds=0.2,
        final_seconds=180,
    )


def assert_healthy(folder: Path) -> Judgement:
    """Nothing is wrong; on a machine with no time for anything, nothing may have happened."""
    judgement = judge_folder(folder)
    assert not judgement.anomalies, judgement.anomalies
    assert judgement.verdict == VALID or judgement.reason.startswith("nothing was "), judgement.reason
    return judgement


@pytest.mark.slow
def test_transactions_on_a_healthy_broker_are_valid_and_faults_are_recorded(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("faults: {touch: {do: 'echo $n >> done', undo: 'echo $n >> undone', choose: {n: [1, 2]}}}")
    folder = tmp_path / "out"
    said: list[str] = []
    run_test(quick(broker.bootstrap, "txn", nemesis=str(faults)), folder, said.append)
    assert_healthy(folder)
    done, undone = ((tmp_path / name).read_text() for name in ("done", "undone"))
    assert done == undone != ""
    assert {event.f for event in read_history(folder / "history.jsonl") if event.process == "nemesis"} == {
        "touch",
        "heal",
    }
    assert json.loads((folder / "test.json").read_text())["final_phase"] == "complete"
    assert any("touch n=" in line for line in said)


@pytest.mark.slow
def test_a_group_of_our_own_clients_is_valid_and_its_offsets_are_asked_for(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    run_test(quick(broker.bootstrap, "group", "kbroker"), tmp_path / "out", lambda _: None)
    assert len(assert_healthy(tmp_path / "out").columns.fetches) == 2


@pytest.mark.slow
def test_a_test_that_fails_by_itself_ends_soon_and_nobody_knows_what_it_would_have_found(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_with: list[Limits] = []

    class Odd(ConfluentLibrary):
        def create_topic(self, name: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
            made_with.append(self._limits)
            if "-extra-" in name:
                raise ZeroDivisionError("no such number")
            super().create_topic(name, partitions, replicas, config)

    monkeypatch.setattr(runner, "make_library", lambda name, *arguments: Odd(*arguments))
    monkeypatch.setattr(runner, "EXTRA_TOPICS_EVERY", 1.0)
    run_test(quick(broker.bootstrap, "append", seconds=600), tmp_path / "out", lambda _: None)
    judgement = judge_folder(tmp_path / "out")
    assert judgement.verdict == UNKNOWN
    assert judgement.reason.startswith(
        "the test itself failed: the admin failed: ZeroDivisionError: no such number (create_topic, line "
    )
    assert made_with == [PATIENT, UNDER_FAULTS], "before the first fault nobody gives up soon"


def test_a_folder_with_a_history_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text("")
    with pytest.raises(TrialFailed, match="has a history already"):
        run_test(quick("127.0.0.1:1", "append"), tmp_path, lambda _: None)


@pytest.mark.compat
@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_healthy_kafka_is_valid(kafka_broker: JavaBroker, tmp_path: Path, workload: str) -> None:
    run_test(quick(kafka_broker.bootstrap, workload, seconds=10), tmp_path / "out", lambda _: None)
    judgement = judge_folder(tmp_path / "out")
    assert judgement.verdict == VALID, (judgement.reason, judgement.anomalies)

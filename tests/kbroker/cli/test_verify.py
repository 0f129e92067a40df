"""Tests for kbroker.cli.verify: a recorded history is judged, and the exit status says how."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from kbroker.verify.history import write_history
from kbroker.verify.runner import TrialFailed
from tests.kbroker.cli.commands import kbroker
from tests.kbroker.verify.edits import EDITS
from tests.kbroker.verify.simulated import healthy


@pytest.mark.slow
def test_a_healthy_history_is_valid_and_its_report_is_written(tmp_path: Path) -> None:
    write_history(tmp_path / "history.jsonl", healthy(1, "append"))
    done = kbroker("verify", "check", str(tmp_path), "--edn")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("VALID: ")
    assert (tmp_path / "report.txt").read_text() == done.stdout
    assert (tmp_path / "timeline.png").stat().st_size > 0
    assert "data:image/png" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "history.edn").read_text().startswith("{:index 0")


@pytest.mark.slow
def test_an_anomaly_and_what_nobody_knows_have_their_own_status(tmp_path: Path) -> None:
    events = healthy(1, "append")
    assert EDITS["lost-write"][0](events, random.Random(1))
    write_history(tmp_path / "history.jsonl", events)
    done = kbroker("verify", "check", str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert "lost-write" in done.stdout.splitlines()[0]

    write_history(tmp_path / "history.jsonl", healthy(1, "append"))
    (tmp_path / "test.json").write_text(json.dumps({"final_phase": "a broker was away"}))
    done = kbroker("verify", "check", str(tmp_path))
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        2,
        "UNKNOWN: partitions were not read to their ends: a broker was away",
    )


@pytest.mark.slow
@pytest.mark.parametrize("file", ["report.txt", "timeline.png"])
def test_an_anomaly_is_told_also_where_its_report_cannot_be_written(tmp_path: Path, file: str) -> None:
    events = healthy(1, "append")
    assert EDITS["lost-write"][0](events, random.Random(1))
    write_history(tmp_path / "history.jsonl", events)
    (tmp_path / file).mkdir()
    done = kbroker("verify", "check", str(tmp_path))
    assert (done.returncode, "lost-write" in done.stdout) == (1, True), done.stderr
    assert done.stderr.splitlines()[-1] == f"kbroker: {tmp_path / file}: Is a directory"


@pytest.mark.slow
@pytest.mark.parametrize(("edit", "status"), [("", 2), ("lost-write", 1)])
def test_where_nobody_reads_the_verdict_only_an_anomaly_has_the_status_of_one(
    tmp_path: Path, edit: str, status: int
) -> None:
    events = healthy(1, "append")
    assert not edit or EDITS[edit][0](events, random.Random(1))
    write_history(tmp_path / "history.jsonl", events)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "kbroker", "verify", "check", str(tmp_path)]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=120, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, b"Error" in done.stderr) == (status, False), done.stderr


def test_a_report_that_cannot_be_written_is_no_success(tmp_path: Path) -> None:
    write_history(tmp_path / "history.jsonl", healthy(1, "append"))
    (tmp_path / "report.txt").mkdir()
    done = kbroker("verify", "check", str(tmp_path))
    assert (done.returncode, done.stdout.partition(":")[0]) == (2, "VALID"), done.stderr


@pytest.mark.slow
def test_what_goes_wrong_with_the_test_itself_is_never_an_anomaly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_history(tmp_path / "history.jsonl", healthy(1, "append"))
    (tmp_path / "test.json").write_text(json.dumps({"failure": "SendingWorker 3 failed: KeyError: 5"}))
    done = kbroker("verify", "check", str(tmp_path))
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        2,
        "UNKNOWN: the test itself failed: SendingWorker 3 failed: KeyError: 5",
    )
    for error, line in (
        (ZeroDivisionError("no such number"), "the test itself failed: ZeroDivisionError: no such number"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ):
        monkeypatch.setattr("kbroker.verify.checker.judge_folder", Mock(side_effect=error))
        done = kbroker("verify", "check", str(tmp_path))
        assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"kbroker: {line}")


def test_what_is_no_history_is_named_and_its_status_is_that_nobody_knows(tmp_path: Path) -> None:
    done = kbroker("verify", "check", str(tmp_path))
    assert done.returncode == 2
    assert "history.jsonl" in done.stderr
    (tmp_path / "history.jsonl").write_text("{}\n")
    done = kbroker("verify", "check", str(tmp_path))
    assert done.returncode == 2
    assert "line 1 is no event of a history" in done.stderr
    done = kbroker(
        "verify", "-b", "127.0.0.1:1", "--nemesis", str(tmp_path / "none.yaml"), "--out", str(tmp_path / "out")
    )
    assert done.returncode == 2
    assert "the nemesis is none, proxy or a YAML file" in done.stderr


@pytest.mark.parametrize("client", ["confluent", "kbroker"])
def test_where_no_broker_is_that_is_said_at_once_and_nothing_is_left(tmp_path: Path, client: str) -> None:
    done = kbroker("verify", "-b", "127.0.0.1:1", "--client", client, "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "no connection to 127.0.0.1:1" in done.stderr
    assert "kbroker dev starts one here" in done.stderr
    assert not (tmp_path / "out").exists()


def test_settings_of_librdkafkas_own_are_left_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = Mock(side_effect=TrialFailed("it came so far"))
    monkeypatch.setattr("kbroker.verify.runner.run_test", runs)
    done = kbroker("verify", "-b", "127.0.0.1:1", "-X", "socket.nagle.disable=true", "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (2, "kbroker: it came so far\n")

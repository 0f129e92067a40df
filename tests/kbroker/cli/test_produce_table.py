"""`kbroker topic produce --from` on a real broker."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import fail, kbroker, succeed

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def topic(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, topic_name: str) -> str:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    succeed("topic", "create", topic_name)
    return topic_name


def records(topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in succeed("topic", "consume", topic, "-e", "--format", "json").splitlines()]


def values(topic: str) -> list[Any]:
    return [json.loads(record["value"]) for record in records(topic)]


def numbers(path: Path, count: int, **columns: Any) -> str:
    parquet.write_table(pa.table({"n": list(range(count)), **columns}), path)
    return str(path)


def test_rows_of_a_file_are_records_keyed_by_a_column(topic: str, tmp_path: Path) -> None:
    file = numbers(tmp_path / "a.parquet", 3, carrier=["UA", "AA", None], at=pa.array([1, 2, 3]))
    done = kbroker("topic", "produce", topic, "--from", file, "-k", "carrier", "--timestamp", "at", "-H", "a=b")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"3 records written to {topic}\n")
    found = records(topic)
    assert [(record["key"], record["timestamp"]) for record in found] == [("UA", 1), ("AA", 2), (None, 3)]
    assert [json.loads(record["value"])["n"] for record in found] == [0, 1, 2]
    assert {tuple(map(tuple, record["headers"])) for record in found} == {(("a", "b"),)}


@pytest.mark.slow
def test_csv_and_lines_of_json_go_too_also_from_standard_input(topic: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,t\n1,x\n2,y\n")
    succeed("topic", "produce", topic, "--from", str(tmp_path / "a.csv"), "--skip", "1")
    succeed("topic", "produce", topic, "--from", "-", "--format", "ndjson", "-z", "zstd", given=b'{"n":3}\n{"n":4}')
    succeed("topic", "produce", topic, "--from", str(tmp_path / "a.csv"), "--value", "t", "--type", "t=binary")
    assert [record["value"] for record in records(topic)] == ['{"n":2,"t":"y"}', '{"n":3}', '{"n":4}', "x", "y"]


@pytest.mark.slow
def test_what_was_sent_before_bad_input_is_written_and_said(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.cli.table_input.PIECE_BYTES", 64)
    file = tmp_path / "a.ndjson"
    file.write_text("".join(json.dumps({"n": number}) + "\n" for number in range(20)) + "oops\n")
    said = fail("topic", "produce", topic, "--from", str(file))
    sent = len(values(topic))
    assert sent >= 10
    assert f"{file}: line 21 is no JSON object" in said
    assert f"({sent} records written to {topic}; --skip {sent} goes on behind them)" in said
    file.write_text("".join(json.dumps({"n": number}) + "\n" for number in range(21)))
    succeed("topic", "produce", topic, "--from", str(file), "--skip", str(sent))
    assert [value["n"] for value in values(topic)] == list(range(21))
    assert "--skip left out all" in fail("topic", "produce", topic, "--from", str(file), "--skip", "22")


def test_rows_that_the_broker_refuses_are_named(topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.cli.table_input.PIECE_ROWS", 10)
    succeed("config", "alter", "topic", topic, "--set", "max.message.bytes=2000")
    file = numbers(tmp_path / "a.parquet", 30, text=["x"] * 15 + ["x" * 5000] + ["x"] * 14)
    said = fail("topic", "produce", topic, "--from", file, "-X", "batch.size=1000")
    assert "MESSAGE_TOO_LARGE" in said
    written = [value["n"] for value in values(topic)]
    assert 15 not in written
    assert f"{len(written)} records written to {topic}; --skip 15 sends the rows from the first that is not" in said
    assert "row 16 is not written: MESSAGE_TOO_LARGE" in said


def test_a_row_that_no_request_holds_is_named_before_anything_of_its_piece_is_sent(topic: str, tmp_path: Path) -> None:
    file = numbers(tmp_path / "a.parquet", 3, text=["x", "x" * 2_000_000, "x"])
    said = fail("topic", "produce", topic, "--from", file)
    assert f"{file}: row 2 makes a record of 20000" in said
    assert "-X max.request.size=BYTES" in said
    assert "nothing was sent" in said
    assert "there is no partition 7" in fail("topic", "produce", topic, "--from", file, "-p", "7", "--value", "n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--from", "a.txt"),
        ("--from", "missing.csv"),
        ("--from", "a.csv", "-l"),
        ("--from", "a.csv", "a.csv"),
        ("--from", "a.csv", "--type", "n=number"),
        ("--from", "a.csv", "--format", "parquet", "--type", "n=int64"),
        ("--value", "n"),
        ("--skip", "1"),
    ],
)
def test_wrong_usage_exits_with_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "a.csv"):
        Path(name).write_text("n\n1\n")
    assert kbroker("topic", "produce", "t", *arguments).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--from", "-", "--format", "ndjson"), ()])
def test_ctrl_c_sends_what_was_read_and_says_so(topic: str, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "kbroker", "topic", "produce", topic, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(b'{"n":1}\n{"n":2}\n')
            process.stdin.flush()
            reading = [sys.executable, "-m", "kbroker", "topic", "consume", topic, "-n", "2"]
            assert subprocess.run(reading, capture_output=True, timeout=60, check=True).stdout.count(b"\n") == 2
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert f"2 records written to {topic}".encode() in errors
    assert errors.count(b"\n") == 1
    assert process.returncode == 130

"""`kbroker topic consume --to` and `--group` on a real broker."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbroker import Admin, Consumer, Record
from kbroker.cli.consume import begin
from kbroker.cli.interrupts import Interrupts, interrupts
from kbroker.cli.positions import StartPosition
from kbroker.cli.record_copy import Copy, TextSink
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import KafkaError
from tests.kbroker.cli.commands import fail, kbroker, succeed

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def topic(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, topic_name: str, tmp_path: Path) -> str:
    """Thirty records in two partitions: {"n": …, "text": …}."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    monkeypatch.chdir(tmp_path)
    succeed("topic", "create", topic_name, "-p", "2")
    parquet.write_table(pa.table({"n": list(range(30)), "text": [f"ü{n}" for n in range(30)]}), "in.parquet")
    succeed("topic", "produce", topic_name, "--from", "in.parquet", "--key", "n")
    return topic_name


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


def values(records: Sequence[Record]) -> bytes:
    return b"".join(record.value or b"" for record in records)


def never() -> Interrupts:
    return Interrupts(second_raises=False)


def lag(broker: BrokerProcess, group: str, topic: str) -> int:
    """Records that the group has not committed yet."""
    with Admin(broker.bootstrap) as admin:
        committed = {each.partition: found.offset for each, found in admin.list_group_offsets(group).items()}
    return 30 - sum(committed.values())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.ndjson"])
def test_rows_come_back_as_they_were_sent(topic: str, name: str) -> None:
    done = kbroker("topic", "consume", topic, "-e", "--unpack", "--to", name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"30 records written to {name}\n")
    other = f"{topic}-2"
    succeed("topic", "create", other)
    succeed("topic", "produce", other, "--from", name)
    values = [json.loads(line) for line in succeed("topic", "consume", other, "-e").splitlines()]
    assert sorted(values, key=lambda value: value["n"]) == [{"n": n, "text": f"ü{n}"} for n in range(30)]


@pytest.mark.slow
def test_whole_records_are_written_and_sent_again(topic: str) -> None:
    succeed("topic", "consume", topic, "-e", "--to", "out.parquet", "-p", "0")
    table = parquet.read_table("out.parquet")
    assert set(table["partition"].to_pylist()) == {0}
    assert table["offset"].to_pylist() == list(range(table.num_rows))
    succeed("topic", "consume", topic, "-e", "--to", "out.ndjson", "-n", "7")
    lines = Path("out.ndjson").read_text().splitlines()
    assert len(lines) == 7
    for name, kind in (("out.parquet", table.num_rows), ("out.ndjson", 7)):
        other = f"{topic}-{kind}"
        succeed("topic", "create", other)
        succeed("topic", "produce", other, "--from", name, "-k", "key", "--value", "value", "--timestamp", "timestamp")
        again = [json.loads(line) for line in succeed("topic", "consume", other, "-e", "--format", "json").splitlines()]
        assert len(again) == kind
        first = json.loads(lines[0]) if name == "out.ndjson" else None
        assert first is None or [again[0][part] for part in ("key", "value", "timestamp")] == [
            first[part] for part in ("key", "value", "timestamp")
        ]


@pytest.mark.slow
def test_rows_go_to_standard_output_too(topic: str) -> None:
    heading, *rows = succeed("topic", "consume", topic, "-e", "--format", "csv").splitlines()
    assert heading.startswith('"key","value","topic"')
    assert len(rows) == 30
    assert len(succeed("topic", "consume", topic, "-e", "--unpack", "-n", "3").splitlines()) == 3
    command = f"'{sys.executable}' -m kbroker topic consume {topic} -e --format csv | head -1"
    done = subprocess.run(["timeout", "60", "bash", "-c", command], capture_output=True, timeout=90, check=False)
    assert done.stdout.startswith(b'"key"')
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--to", "out.txt"),
        ("--to", "in.parquet"),
        ("--to", "."),
        ("--to", "no/such/folder.csv"),
        ("--to", "out.csv", "-f", "%v"),
        ("--to", "out.csv", "--format", "yaml"),
        ("--unpack", "--format", "table"),
    ],
)
def test_wrong_usage_exits_with_2_and_makes_no_file(topic: str, arguments: tuple[str, ...]) -> None:
    before = Path("in.parquet").read_bytes()
    assert kbroker("topic", "consume", topic, "-e", *arguments).returncode == 2
    assert [path.name for path in Path().iterdir()] == ["in.parquet"]
    assert Path("in.parquet").read_bytes() == before


@pytest.mark.slow
def test_a_file_is_replaced_only_when_asked_and_none_is_made_of_what_is_not_there(topic: str) -> None:
    assert "no-such-topic" in fail("topic", "consume", "no-such-topic", "-e", "--to", "out.csv")
    assert not Path("out.csv").exists()
    succeed("topic", "consume", topic, "-e", "--to", "in.parquet", "--overwrite")
    assert "offset" in parquet.read_schema("in.parquet").names


@pytest.mark.slow
def test_a_value_that_is_no_object_is_named_and_what_was_before_it_is_kept(topic: str) -> None:
    succeed("topic", "produce", topic, "-p", "0", given=b"oops\n")
    said = fail("topic", "consume", topic, "-e", "-p", "0", "--unpack", "--to", "out.parquet")
    assert f"{topic}-0 at offset" in said
    assert "(out.parquet has what came before)" in said
    assert set(parquet.read_table("out.parquet")["n"].to_pylist()) <= set(range(30))
    assert parquet.read_table("out.parquet").num_rows > 0


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.ndjson", None])
def test_a_group_reads_to_its_end_once(topic: str, group: str, broker: BrokerProcess, name: str | None) -> None:
    to = () if name is None else ("--to", name)
    printed = succeed("topic", "consume", topic, "-e", "--group", group, *to)
    assert lag(broker, group, topic) == 0
    if name is None:
        assert len(printed.splitlines()) == 30
    done = kbroker("topic", "consume", topic, "-e", "-G", group, *to, *(("--overwrite",) if name else ()))
    assert (done.returncode, done.stdout) == (0, "")
    assert name is None or done.stderr == f"0 records written to {name}\n"


@pytest.mark.slow
def test_a_member_without_partitions_ends_when_the_others_have_read_all(topic: str, group: str) -> None:
    command = [sys.executable, "-m", "kbroker", "topic", "consume", topic, "-G", group, "-e"]
    members = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    try:
        done = [member.communicate(timeout=100) for member in members]
    finally:
        for member in members:
            member.kill()
    assert [member.returncode for member in members] == [0, 0, 0], done
    numbers = {json.loads(line)["n"] for out, _ in done for line in out.splitlines()}
    assert numbers == set(range(30))


def test_what_a_file_does_not_hold_is_not_committed(topic: str, group: str, broker: BrokerProcess) -> None:
    succeed("topic", "produce", topic, "-p", "0", given=b"oops\n")
    fail("topic", "consume", topic, "-e", "-G", group, "--unpack", "--to", "out.parquet")
    with Admin(broker.bootstrap) as admin:
        assert not admin.list_group_offsets(group)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "early"), [("out.csv", True), ("out.ndjson", True), ("out.parquet", False)])
def test_ctrl_c_ends_a_file_as_it_should_end(
    topic: str, group: str, broker: BrokerProcess, name: str, early: bool
) -> None:
    command = [sys.executable, "-m", "kbroker", "topic", "consume", topic, "--to", name, "-G", group]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            if early:
                wait_until(lambda: lag(broker, group, topic) == 0)
                assert len(Path(name).read_bytes().splitlines()) >= 30, "what is committed is in the file"
            else:
                wait_until(Path(name).exists)
                time.sleep(1)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    count = int(errors.split()[0])
    assert errors == f"{count} record{'' if count == 1 else 's'} written to {name}\n".encode()
    assert lag(broker, group, topic) == 30 - count
    if name == "out.parquet":
        assert parquet.read_table(name).num_rows == count


@pytest.mark.slow
def test_a_leader_that_goes_away_ends_what_has_an_end(
    own_broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.cli.record_copy.SILENT_SECONDS", 0.3)
    succeed("topic", "create", topic_name, "-b", own_broker.bootstrap)
    succeed("topic", "produce", topic_name, "-b", own_broker.bootstrap, given=(b"x" * 999 + b"\n") * 1000)
    written = io.BytesIO()
    with Consumer(own_broker.bootstrap, fetch_max_bytes=10_000, request_timeout_ms=1000) as consumer:
        ends = begin(consumer, [topic_name], None, StartPosition("start"))
        own_broker.kill()
        with pytest.raises((KafkaError, OSError)):
            Copy(consumer, never(), commits=False).run(TextSink(written, values), ends, None, topic_name, None)
    assert len(written.getvalue()) < 1000 * 999


def test_ctrl_c_before_the_end_is_no_end(topic: str, broker: BrokerProcess) -> None:
    stop = never()
    written = io.BytesIO()
    with Consumer(broker.bootstrap) as consumer:
        ends = begin(consumer, [topic], [0], StartPosition("start"))
        stop.on_signal(signal.SIGINT, None)
        job = Copy(consumer, stop, commits=False)
        assert not job.run(TextSink(written, values), ends, None, topic, None)
        assert not job.run(TextSink(written, values), None, 50, topic, None)
        assert job.run(TextSink(written, values), None, None, topic, None)
    assert written.getvalue() == b""


class PressesCtrlC(io.StringIO):
    """Standard error before somebody who presses Ctrl-C at the end of a line."""

    def write(self, text: str) -> int:
        written = super().write(text)
        if text.endswith("\n"):
            os.kill(os.getpid(), signal.SIGINT)
        return written


@pytest.mark.timeout(60)
def test_what_does_not_come_is_named(topic: str, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = PressesCtrlC()
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setattr("kbroker.cli.record_copy.SILENT_SECONDS", 0)
    monkeypatch.setattr("kbroker.cli.record_copy.POLL_SECONDS", 0.01)
    with Consumer(broker.bootstrap) as consumer, interrupts() as stop:
        ends = begin(consumer, [topic], [0], StartPosition("end"))
        (end,) = ends.values()
        job = Copy(consumer, stop, commits=False)
        assert not job.run(TextSink(io.BytesIO(), values), dict.fromkeys(ends, end + 5), None, topic, None)
    assert errors.getvalue() == f"waiting for {topic}-0, read up to {end} of {end + 5}\n"


def test_a_table_of_the_topic_says_how_far_it_is_on_a_terminal(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []

    class Bar:
        def __enter__(self) -> Callable[[int], None]:
            return shown.append

        def __exit__(self, *exception: object) -> None:
            pass

    def bar(text: str, total: int | None) -> Bar:
        shown.append((text, total))
        return Bar()

    monkeypatch.setattr("kbroker.cli.progress.progress_bar", bar)
    succeed("topic", "consume", topic, "-e", "--to", "out.parquet")
    assert shown[0] == (f"{topic} to out.parquet", 30)
    assert shown[-1] == 30

"""`kbroker topic consume` on a real broker."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

import pytest
import yaml

from kbroker import Producer
from kbroker.cli.consume import opened
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import fail, kbroker, succeed


@pytest.fixture(autouse=True)
def _bootstrap(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)


@pytest.fixture
def topic(topic_name: str) -> str:
    succeed("topic", "create", topic_name, "-p", "2")
    lines = b"".join(b"key-%d:value %d\n" % (number, number) for number in range(20))
    succeed("topic", "produce", topic_name, "-K", ":", "-p", "1", "-H", "source=test", given=lines)
    return topic_name


def test_values_come_in_order_up_to_the_end(topic: str) -> None:
    assert succeed("topic", "consume", topic, "-e") == "".join(f"value {number}\n" for number in range(20))


@pytest.mark.parametrize(
    ("offset", "first"), [("start", 0), ("15", 15), ("-3", 17), ("end", 20), ("@0", 0), ("@99999999999999", 20)]
)
def test_reading_begins_where_it_is_told(topic: str, offset: str, first: int) -> None:
    read = succeed("topic", "consume", topic, "-p", "1", "-e", "-o", offset, "-f", "%o ")
    assert read.split() == [str(number) for number in range(first, 20)]


def test_it_ends_after_the_wanted_number(topic: str) -> None:
    assert succeed("topic", "consume", topic, "-n", "3") == "value 0\nvalue 1\nvalue 2\n"


@pytest.mark.slow
def test_records_are_written_as_the_format_says(topic: str) -> None:
    read = succeed("topic", "consume", topic, "-n", "1", "-f", r"%t/%p/%o/%k/%v/%h\t\n")
    assert read == f"{topic}/1/0/key-0/value 0/source=test\t\n"
    assert succeed("topic", "consume", topic, "-n", "1", "-K", "=") == "key-0=value 0\n"


@pytest.mark.slow
def test_whole_records_are_written_as_json_lines_yaml_and_a_table(topic: str) -> None:
    first, second = (
        json.loads(line) for line in succeed("topic", "consume", topic, "-n", "2", "--format", "json").splitlines()
    )
    assert (first["offset"], first["key"], first["value"], first["headers"]) == (
        0,
        "key-0",
        "value 0",
        [["source", "test"]],
    )
    (from_yaml,) = yaml.safe_load_all(succeed("topic", "consume", topic, "-n", "1", "--format", "yaml"))
    assert from_yaml == first
    heading, line = succeed("topic", "consume", topic, "-n", "1", "--format", "table").splitlines()
    assert heading.split() == ["partition", "offset", "timestamp", "key", "value"]
    assert line.split()[:2] == ["1", "0"]
    assert second["offset"] == 1


def test_bytes_that_are_no_text_are_given_in_base64(topic: str) -> None:
    succeed("topic", "produce", topic, "-p", "0", given=b"\xff\xfe")
    read = succeed("topic", "consume", topic, "-p", "0", "-e", "--format", "json")
    assert json.loads(read)["value"] == {"base64": "//4="}


def test_a_null_is_written_as_its_name_on_request(topic: str) -> None:
    succeed("topic", "produce", topic, "-p", "0", "-Z", "-K", ":", given=b":\n")
    assert succeed("topic", "consume", topic, "-p", "0", "-e", "-Z", "-f", "%k|%v") == "NULL|NULL"


@pytest.mark.slow
def test_ctrl_c_is_the_usual_end(topic: str) -> None:
    command = [sys.executable, "-m", "kbroker", "topic", "consume", topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            for number in range(20):
                assert process.stdout.readline() == b"value %d\n" % number
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
            assert (process.returncode, errors) == (0, b"")
        finally:
            process.kill()


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_traceback(topic: str) -> None:
    command = f"'{sys.executable}' -m kbroker topic consume {topic} -e | head -1"
    done = subprocess.run(["timeout", "20", "bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert done.stdout == b"value 0\n"
    assert b"Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_noticed_where_output_is_not_buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()

    def read_a_little() -> None:
        os.read(reading, 1)
        os.close(reading)

    reader = threading.Thread(target=read_a_little)
    reader.start()
    # Python's own standard output with PYTHONUNBUFFERED, as in most images of containers.
    with io.TextIOWrapper(cast(BinaryIO, open(writing, "wb", buffering=0)), write_through=True) as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(BrokenPipeError), opened(None) as stream:
            stream.write(b"x" * 1_000_000)
        monkeypatch.undo()
    reader.join(10)


@pytest.mark.slow
def test_what_does_not_exist_is_told_in_a_line() -> None:
    assert "no-such-topic" in fail("topic", "consume", "no-such-topic", "-e")


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "middle"),
        ("-f", "%q"),
        ("-f", "%v", "--format", "json"),
        ("-n", "0"),
        ("-X", "isolation.level=bogus"),
    ],
)
def test_wrong_usage_exits_with_2(topic: str, arguments: tuple[str, ...]) -> None:
    assert kbroker("topic", "consume", topic, *arguments).returncode == 2


@pytest.mark.slow
def test_only_records_with_the_key_the_text_and_the_headers_come(topic: str) -> None:
    assert succeed("topic", "consume", topic, "-e", "--key", "key-7") == "value 7\n"
    assert succeed("topic", "consume", topic, "-e", "--grep", "value 1[0-2]$") == "value 10\nvalue 11\nvalue 12\n"
    assert succeed("topic", "consume", topic, "-e", "-H", "source=test", "-g", "1", "-n", "2") == "value 1\nvalue 10\n"
    done = kbroker("topic", "consume", topic, "-e", "-H", "source=other")
    assert (done.stdout, "0 of 20 records" in done.stderr) == ("", True)
    assert kbroker("topic", "consume", topic, "-e", "--grep", "(").returncode == 2


@pytest.mark.slow
def test_a_filter_holds_for_rows_of_files_too(topic: str, tmp_path: Path) -> None:
    succeed("topic", "consume", topic, "-e", "--grep", "9$", "--to", str(tmp_path / "some.csv"))
    lines = (tmp_path / "some.csv").read_text().splitlines()
    assert [line.split(",")[1].strip('"') for line in lines[1:]] == ["value 9", "value 19"]


def test_a_member_that_wants_a_number_of_records_commits_no_more_than_it_looked_at(topic: str) -> None:
    group = f"{topic}-some"
    read = succeed("topic", "consume", topic, "--group", group, "-e", "-g", "value [24]", "-n", "2")
    assert read == "value 2\nvalue 4\n"
    assert succeed("topic", "consume", topic, "--group", group, "-e", "-n", "1") == "value 5\n"


@pytest.mark.slow
def test_reading_may_end_at_a_time(topic_name: str) -> None:
    succeed("topic", "create", topic_name, "-c", "retention.ms=-1")
    with Producer(os.environ["KBROKER_BOOTSTRAP"]) as producer:
        for day in (1, 2, 3):
            moment = int(datetime(2026, 1, day, tzinfo=UTC).timestamp() * 1000)
            producer.send(topic_name, b"%d" % day, timestamp_ms=moment)
    assert succeed("topic", "consume", topic_name, "-o", "e@2026-01-02T12:00Z") == "1\n2\n"
    assert succeed("topic", "consume", topic_name, "-o", "s@2026-01-02T00:00Z", "-o", "e@2026-01-03T00:00Z") == "2\n"
    assert succeed("topic", "consume", topic_name, "-o", "e@2027-01-01") == "1\n2\n3\n"
    assert kbroker("topic", "consume", topic_name, "-o", "start", "-o", "end").returncode == 2


@pytest.mark.slow
def test_several_topics_or_a_pattern_are_read(topic_name: str) -> None:
    for number in (1, 2):
        succeed("topic", "create", f"{topic_name}.{number}")
        succeed("topic", "produce", f"{topic_name}.{number}", given=b"%d\n" % number)
    names = (f"{topic_name}.1", f"{topic_name}.2")
    for asked in (names, (f"^{topic_name}",)):
        read = succeed("topic", "consume", *asked, "-e", "-f", r"%t %v{hex}\n")
        assert sorted(read.splitlines()) == [f"{names[0]} 31", f"{names[1]} 32"]
    assert "no topic matches" in fail("topic", "consume", f"^{topic_name}-none", "-e")

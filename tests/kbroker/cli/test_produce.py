"""`kbroker topic produce` on a real broker, and how it cuts its input."""

import io
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kbroker.cli.produce import LOOK_EVERY, Told, split, to_record
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode, KafkaError
from tests.kbroker.cli.commands import fail, kbroker, succeed


@pytest.fixture
def topic(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, topic_name: str) -> str:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    succeed("topic", "create", topic_name)
    return topic_name


def records(topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in succeed("topic", "consume", topic, "-e", "--format", "json").splitlines()]


def pairs(topic: str) -> list[tuple[Any, Any]]:
    return [(record["key"], record["value"]) for record in records(topic)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_line_of_the_input_is_a_record(topic: str, codec: str) -> None:
    done = kbroker("topic", "produce", topic, "-z", codec, given=b"one\ntwo\n\nlast without end")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"4 records written to {topic}\n")
    assert [value for _, value in pairs(topic)] == ["one", "two", "", "last without end"]


def test_a_key_is_the_same_for_all_or_cut_from_each_line(topic: str) -> None:
    succeed("topic", "produce", topic, "-k", "fixed", given=b"a\n")
    succeed("topic", "produce", topic, "-K", r"\t", given=b"k\tv\tw\nno key\n")
    assert pairs(topic) == [("fixed", "a"), ("k", "v\tw"), (None, "no key")]


def test_empty_is_null_on_request(topic: str) -> None:
    succeed("topic", "produce", topic, "-Z", "-K", ":", given=b":\nk:\n:v\n")
    assert pairs(topic) == [(None, None), ("k", None), (None, "v")]


def test_headers_are_sent_with_every_record(topic: str) -> None:
    succeed("topic", "produce", topic, "-H", "a=1", "-H", "b=x=y", "-H", "null", given=b"v\n")
    assert records(topic)[0]["headers"] == [["a", "1"], ["b", "x=y"], ["null", None]]


@pytest.mark.slow
def test_a_file_is_a_record_or_its_lines_are(topic: str, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"a\nb\n")
    (tmp_path / "two").write_bytes(b"c")
    succeed("topic", "produce", topic, str(tmp_path / "one"), str(tmp_path / "two"))
    succeed("topic", "produce", topic, "-l", str(tmp_path / "one"))
    assert [value for _, value in pairs(topic)] == ["a\nb\n", "c", "a", "b"]


def test_what_the_broker_refuses_is_told_in_a_line(topic: str) -> None:
    succeed("config", "alter", "topic", topic, "--set", "max.message.bytes=1000")
    assert "MESSAGE_TOO_LARGE" in fail("topic", "produce", topic, given=b"x" * 5000)


def test_which_record_is_not_written_and_how_many_are_is_told(topic: str) -> None:
    succeed("config", "alter", "topic", topic, "--set", "max.message.bytes=1000")
    lines = [b"a"] * 20 + [b"x" * 5000] + [b"b"] * 9
    said = fail("topic", "produce", topic, given=b"\n".join(lines))
    assert "MESSAGE_TOO_LARGE" in said
    there = len(pairs(topic))
    assert f"({there} record{'' if there == 1 else 's'} written to {topic}; record " in said
    number = int(said.partition("; record ")[2].split()[0])
    assert number <= 21


def test_a_record_that_cannot_be_sent_is_told_with_its_number_too(topic: str) -> None:
    said = fail("topic", "produce", topic, given=b"a\n" + b"x" * 2_000_000 + b"\nb\n")
    assert said.endswith(f"(1 record written to {topic}; record 2 is the first that is not)\n")
    assert pairs(topic) == [(None, "a")]


@pytest.mark.slow
@pytest.mark.parametrize("given", [(), ("--from", "-", "--format", "ndjson")])
def test_what_nobody_acknowledges_is_sent_and_not_called_written(topic: str, given: tuple[str, ...]) -> None:
    done = kbroker("topic", "produce", topic, "--acks", "0", *given, given=b'{"n":1}\n')
    assert (done.returncode, done.stderr) == (0, f"1 record sent to {topic}, which nobody acknowledges (--acks 0)\n")


@pytest.mark.parametrize("arguments", [("-H", "=v"), ("-D", ""), ("-z", "zip"), ("/no/such/file",)])
def test_wrong_usage_exits_with_2(topic: str, arguments: tuple[str, ...]) -> None:
    assert kbroker("topic", "produce", topic, *arguments).returncode == 2


@pytest.mark.parametrize(
    ("text", "parts"),
    [(b"", []), (b"a", [b"a"]), (b"a\n", [b"a"]), (b"a\n\nb", [b"a", b"", b"b"]), (b"\n", [b""])],
)
def test_input_is_cut_at_the_delimiter(text: bytes, parts: list[bytes]) -> None:
    assert list(split(io.BytesIO(text), b"\n")) == parts


def test_a_delimiter_across_two_reads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.cli.produce.CHUNK_BYTES", 3)
    assert list(split(io.BytesIO(b"abc<>de<>f"), b"<>")) == [b"abc", b"de", b"f"]


def test_only_the_first_key_delimiter_counts() -> None:
    assert to_record(b"a:b:c", None, b":", False) == (b"a", b"b:c")
    assert to_record(b"abc", b"k", b":", False) == (b"k", b"abc")


def test_where_each_record_is_can_be_said(topic: str) -> None:
    said = succeed("topic", "produce", topic, "-p", "0", "-v", given=b"a\nb\n")
    assert [line.split() for line in said.splitlines()] == [[topic, "0", "0"], [topic, "0", "1"]]


def delivery(error: Exception | None = None, *, done: bool = True) -> Mock:
    return Mock(done=Mock(return_value=done), result=Mock(side_effect=error))


@pytest.mark.slow
def test_a_record_that_is_long_under_way_hides_nothing_of_those_behind_it() -> None:
    told = Told(verbose=False)
    hanging = delivery(done=False)
    late = delivery(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), done=False)
    refused = delivery(KafkaError(ErrorCode.MESSAGE_TOO_LARGE))
    for each in (hanging, late, refused, *[delivery()] * (LOOK_EVERY - 3)):
        told.add(each)
    hanging.result.assert_not_called()
    assert told.written == LOOK_EVERY - 3
    assert told.failure is not None
    assert told.failure[0] == 3
    told.settle(1.0)
    assert told.written == LOOK_EVERY - 2
    assert told.failure[0] == 2
    assert "NOT_LEADER_OR_FOLLOWER" in told.failure[1]

"""`kbroker topic delete-records` and `kbroker topic empty` on a real broker."""

from collections.abc import Iterator

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import fail, kbroker, rows, succeed


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two partitions of three records each."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    succeed("topic", "create", topic_name, "-p", "2", "-c", "retention.ms=-1")
    for partition in ("0", "1"):
        succeed("topic", "produce", topic_name, "-p", partition, given=b"a\nb\nc\n")
    yield topic_name
    succeed("topic", "delete", topic_name)


def starts(topic: str) -> list[int]:
    return [row["start_offset"] for row in rows("topic", "describe", topic)]


@pytest.mark.slow
def test_records_before_an_offset_go_and_the_others_stay(topic: str) -> None:
    deleted = rows("topic", "delete-records", f"{topic}:1", "--before", "-1")
    assert deleted == [{"topic": topic, "partition": 1, "before": 0, "after": 2, "deleted": 2}]
    assert starts(topic) == [0, 2]
    assert succeed("topic", "consume", topic, "-p", "1", "-e") == "c\n"


def test_a_dry_run_says_what_would_go_and_leaves_it(topic: str) -> None:
    planned = rows("topic", "empty", topic, "--dry-run")
    assert [row["deleted"] for row in planned] == [3, 3]
    assert starts(topic) == [0, 0]


@pytest.mark.slow
def test_emptying_a_topic_deletes_all_and_a_second_time_nothing(topic: str) -> None:
    assert [row["deleted"] for row in rows("topic", "empty", topic)] == [3, 3]
    assert starts(topic) == [3, 3]
    assert rows("topic", "empty", topic) == []
    assert "nothing to delete" in kbroker("topic", "empty", topic).stderr


def test_records_since_a_time_stay(topic: str) -> None:
    assert rows("topic", "delete-records", topic, "--before", "@-1h") == []
    assert starts(topic) == [0, 0]


@pytest.mark.slow
def test_an_offset_above_the_end_of_a_partition_is_refused_and_nothing_goes(topic: str) -> None:
    succeed("topic", "produce", topic, "-p", "0", given=b"d\n")
    for arguments in ((), ("--dry-run",)):
        said = fail("topic", "delete-records", topic, "--before", "4", *arguments)
        assert f"{topic}-1 ends at 3" in said
        assert f"{topic}-0" not in said
    assert starts(topic) == [0, 0]
    assert [row["after"] for row in rows("topic", "delete-records", topic, "--before", "3")] == [3, 3]


def test_what_is_no_position_is_wrong_usage() -> None:
    done = kbroker("topic", "delete-records", "t", "--before", "@soon")
    assert done.returncode == 2
    assert "is no time" in done.stderr

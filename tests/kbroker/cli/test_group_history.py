"""`kbroker group history` on a real broker."""

import pytest

from kbroker import Consumer
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import kbroker, rows, succeed


@pytest.fixture
def group(broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A group that one member joined and left."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    succeed("topic", "create", topic_name)
    with Consumer(broker.bootstrap, group_id=topic_name, client_id="reader") as consumer:
        consumer.subscribe([topic_name])
        while not consumer.assignment():
            consumer.poll(0.1)
    return topic_name


def test_the_story_is_told_in_sentences(group: str) -> None:
    lines = succeed("group", "history", group).splitlines()
    assert "generation 1 of 1 member; the group stood still for " in lines[0]
    assert lines[1].startswith("    reader-")
    assert "joined" in lines[1]
    assert any("  nobody is in the group any more" in line for line in lines)
    assert any(line.startswith("    reader-") and " left" in line for line in lines)


def test_programs_get_it_as_rows_and_the_last_ones_alone(group: str) -> None:
    told = rows("group", "history", group)
    assert told[0]["broker"] == 1
    assert (told[0]["generation"], told[0]["members"]) == (1, 1)
    assert rows("group", "history", group, "--last", "1") == told[-1:]


def test_watching_tells_only_what_is_new(group: str) -> None:
    once = succeed("group", "history", group)
    assert succeed("group", "history", group, "--watch", "0.1", "-n", "3") == once


def test_a_group_of_which_nothing_is_known_is_no_error(group: str) -> None:
    done = kbroker("group", "history", f"{group}-none")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing is known" in done.stderr

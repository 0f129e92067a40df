"""`kbroker group history` on a real broker."""

import pytest
import yaml

from kbroker import Consumer
from kbroker.client.types import GroupRebalance
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


def test_what_a_broker_that_did_not_answer_once_tells_again_is_not_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def rebalance(number: int) -> GroupRebalance:
        return GroupRebalance(1, number, 5, number, 1, (f"reason {number}",), f"outcome {number}", ())

    answers = [[rebalance(1), rebalance(2)], [rebalance(2)], [rebalance(1), rebalance(2), rebalance(3)], []]
    left: list[list[GroupRebalance]] = []

    async def told(*asked: object) -> list[GroupRebalance]:
        return left.pop(0)

    monkeypatch.setattr("kbroker.client.admin.Admin.group_history", told)
    for output_format in ("table", "yaml"):
        left[:] = answers
        text = succeed("group", "history", "g", "--watch", "0.1", "-n", "4", "--format", output_format)
        assert [text.count(f"reason {number}") for number in (1, 2, 3)] == [1, 1, 1]
    assert [len(document) for document in yaml.safe_load_all(text)] == [2, 1], "a look without news is no document"


def test_that_nothing_is_known_is_said_once(group: str) -> None:
    done = kbroker("group", "history", f"{group}-none", "--watch", "0.1", "-n", "3")
    assert done.stderr.count("nothing is known") == 1


def test_a_group_of_which_nothing_is_known_is_no_error(group: str) -> None:
    done = kbroker("group", "history", f"{group}-none")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing is known" in done.stderr

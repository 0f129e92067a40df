"""`kbroker group list|describe|reset|delete` and `topic consume --group` on a real broker."""

from collections.abc import Iterator

import pytest

from kbroker import Admin, Consumer
from kbroker.dev.broker_process import BrokerProcess
from tests.kbroker.cli.commands import fail, kbroker, rows, succeed


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two partitions with a, b, c and d; the group of the same name has read all but c."""
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    succeed("topic", "create", topic_name, "-p", "2", "-c", "retention.ms=-1")
    succeed("topic", "produce", topic_name, "-p", "0", given=b"a\nb\nc\n")
    succeed("topic", "produce", topic_name, "-p", "1", given=b"d\n")
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(topic_name, {(topic_name, 0): 2, (topic_name, 1): 1})
    yield topic_name
    succeed("topic", "delete", topic_name)


def test_a_group_is_listed_with_its_state(topic: str) -> None:
    assert {"group": topic, "state": "Empty", "type": "classic", "protocol": ""} in rows("group", "list")
    assert topic in [row["group"] for row in rows("group", "list", "--state", "Empty")]
    assert topic not in [row["group"] for row in rows("group", "list", "--state", "Stable")]


def test_a_description_says_how_far_the_group_is(topic: str) -> None:
    first, second = rows("group", "describe", topic)
    assert (first["committed"], first["end_offset"], first["lag"], first["member"]) == (2, 3, 1, None)
    assert (second["committed"], second["end_offset"], second["lag"]) == (1, 1, 0)
    text = succeed("group", "describe", topic)
    assert f"group {topic}: Empty, classic, 0 members, coordinator is broker 1" in text
    assert "there is no group" in fail("group", "describe", f"{topic}-none")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_description_says_who_reads_what(broker: BrokerProcess, topic: str, protocol: str) -> None:
    group = f"{topic}-{protocol}"
    with Consumer(broker.bootstrap, group_id=group, group_protocol=protocol, client_id="reader") as consumer:
        consumer.subscribe([topic])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.1)
        described = rows("group", "describe", group)
        assert [row["client"] for row in described] == ["reader", "reader"]
        (member,) = rows("group", "describe", group, "--members")
        assert (member["client"], member["partitions"], member["topics"]) == ("reader", 2, [topic])
        text = succeed("group", "describe", group, "--members")
        assert f"{group}: Stable, {protocol}, assignor" in text
        assert ("last rebalance: reader-" in text) == (protocol == "classic")
        assert "NON_EMPTY_GROUP" in fail("group", "reset", group, "--to", "start", "-t", topic)
        said = fail("group", "reset", group, "--to", "start", "-t", topic, "--dry-run")
        assert said == fail("group", "reset", group, "--to", "start", "-t", topic)
        assert fail("group", "clone", topic, group, "--dry-run") == said
        assert "NON_EMPTY_GROUP" in fail("group", "delete", group)


@pytest.mark.slow
def test_a_reset_moves_all_or_some_partitions(topic: str) -> None:
    moved = rows("group", "reset", topic, "--to", "start", "--dry-run")
    assert [(row["before"], row["after"]) for row in moved] == [(2, 0), (1, 0)]
    moved = rows("group", "reset", topic, "--to", "-1", "-t", f"{topic}:0")
    assert [(row["partition"], row["before"], row["after"]) for row in moved] == [(0, 2, 2)]
    moved = rows("group", "reset", topic, "--to", "@1000", "-t", topic)
    assert [(row["before"], row["after"]) for row in moved] == [(2, 0), (1, 0)]
    assert [row["committed"] for row in rows("group", "describe", topic)] == [0, 0]
    assert kbroker("group", "reset", topic, "--to", "yesterday").returncode == 2
    assert kbroker("group", "reset", topic, "--to", "end", "-t", f"{topic}:x").returncode == 2


@pytest.mark.slow
def test_groups_and_single_offsets_are_deleted(topic: str) -> None:
    succeed("group", "delete", topic, "--topic", f"{topic}:1")
    assert [row["partition"] for row in rows("group", "describe", topic)] == [0]
    succeed("group", "delete", topic)
    assert topic not in [row["group"] for row in rows("group", "list")]
    assert "GROUP_ID_NOT_FOUND" in fail("group", "delete", topic)


@pytest.mark.slow
def test_a_member_reads_on_where_its_group_was(topic: str) -> None:
    assert succeed("topic", "consume", topic, "--group", topic, "--exit") == "c\n"
    assert [row["lag"] for row in rows("group", "describe", topic)] == [0, 0]
    assert sorted(succeed("topic", "consume", topic, "-G", f"{topic}-new", "-n", "4").split()) == list("abcd")
    assert kbroker("topic", "consume", topic, "-G", topic, "-p", "0").returncode == 2
    assert kbroker("topic", "consume", topic, "-G", topic, "-o", "17").returncode == 2
    assert "UNKNOWN_TOPIC_OR_PARTITION" in fail("topic", "consume", f"{topic}-none", "-G", topic)

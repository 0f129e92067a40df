"""`kbroker transaction list|describe|find-hanging|abort` and `topic consume --isolation` on a real broker."""

import time
from collections.abc import Iterator

import pytest

from kbroker import Admin, FencedError, Producer
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.builder import BatchBuilder
from tests.fixtures.brokers import MakeCluster, kill_and_expire
from tests.kbroker.cli.commands import fail, kbroker, rows, succeed
from tests.kbroker.client.topics import produce_batch, wait_until

HANGING_ID = 987_654_321


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("KBROKER_BOOTSTRAP", broker.bootstrap)
    succeed("topic", "create", topic_name, "-p", "2", "-c", "retention.ms=-1")
    yield topic_name
    succeed("topic", "delete", topic_name)


@pytest.fixture
def open_transaction(broker: BrokerProcess, topic: str) -> Iterator[Producer]:
    """One record is committed, one is not yet."""
    with Producer(broker.bootstrap, transactional_id=topic, transaction_timeout_ms=49_000) as producer:
        with producer.transaction():
            producer.send(topic, b"committed", partition=0)
        producer.begin()
        producer.send(topic, b"open", partition=0).result(20)
        yield producer


@pytest.fixture
def hanging(broker: BrokerProcess, topic: str) -> None:
    """A record of a transaction that no coordinator knows."""
    builder = BatchBuilder()
    builder.append(None, b"hangs", (), int(time.time() * 1000))
    key = "transaction.partition.verification.enable"
    succeed("config", "alter", "broker", "1", "--set", f"{key}=false")
    try:
        batch = bytes(builder.build(HANGING_ID, 0, 0, True))
        assert produce_batch(broker.bootstrap, topic, 1, batch, topic) is ErrorCode.NONE
    finally:
        succeed("config", "alter", "broker", "1", "--unset", key)


def test_an_open_transaction_is_listed_and_described(topic: str, open_transaction: Producer) -> None:
    (listed,) = [row for row in rows("transaction", "list", "--state", "Ongoing") if row["transactional_id"] == topic]
    assert (listed["coordinator"], listed["state"]) == (1, "Ongoing")
    of_producer = rows("transaction", "list", "--producer-id", str(listed["producer_id"]))
    assert of_producer == [listed]
    (found,) = rows("transaction", "describe", topic)
    assert (found["state"], found["timeout_ms"], found["partitions"]) == ("Ongoing", 49_000, [f"{topic}-0"])
    assert 0 <= found["open_for_s"] < 60
    assert topic in succeed("transaction", "list")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in fail("transaction", "describe", f"{topic}-none")
    assert "no state Asleep" in fail("transaction", "list", "--state", "Asleep")
    open_transaction.commit()
    (found,) = rows("transaction", "describe", topic)
    assert found["open_for_s"] is None or found["state"] == "PrepareCommit"


def test_an_abort_shuts_the_producer_out(topic: str, open_transaction: Producer) -> None:
    succeed("transaction", "abort", topic)
    with pytest.raises(FencedError):
        open_transaction.commit()
    (found,) = rows("transaction", "describe", topic)
    assert (found["open_for_s"], found["partitions"]) == (None, [])
    assert "TRANSACTIONAL_ID_NOT_FOUND" in fail("transaction", "abort", f"{topic}-none")


@pytest.mark.slow
def test_consume_leaves_out_what_is_not_committed_where_that_is_asked_for(
    topic: str, open_transaction: Producer
) -> None:
    assert succeed("topic", "consume", topic, "--exit", "--isolation", "read-committed") == "committed\n"
    for options in ((), ("--isolation", "read-uncommitted")):
        assert succeed("topic", "consume", topic, "--exit", *options) == "committed\nopen\n"
    open_transaction.commit()
    both = "committed\nopen\n"
    wait_until(lambda: succeed("topic", "consume", topic, "--exit", "--isolation", "read-committed") == both)


@pytest.mark.usefixtures("hanging")
def test_a_hanging_transaction_is_found_and_aborted(topic: str) -> None:
    assert rows("transaction", "find-hanging", "-t", topic) == []
    (found,) = rows("transaction", "find-hanging", "-t", f"{topic}:1", "--silent-minutes", "0")
    assert (found["topic"], found["partition"], found["start_offset"]) == (topic, 1, 0)
    assert (found["producer_id"], found["transactional_id"]) == (HANGING_ID, None)
    everywhere = rows("transaction", "find-hanging", "--broker", "1", "--silent-minutes", "0")
    assert HANGING_ID in [row["producer_id"] for row in everywhere]
    said = fail("transaction", "abort", "--hanging", f"{topic}:1", "--start-offset", "7")
    assert f"no hanging transaction begins at offset 7 of {topic}-1" in said
    succeed("transaction", "abort", "--hanging", f"{topic}:1", "--start-offset", "0")
    assert rows("transaction", "find-hanging", "-t", topic, "--silent-minutes", "0") == []


@pytest.mark.slow
def test_partitions_without_a_leader_are_not_called_free_of_hanging_transactions(
    make_cluster: MakeCluster, topic_name: str
) -> None:
    cluster = make_cluster(2)
    first, second = cluster.brokers
    with Admin(first.bootstrap) as admin:
        admin.create_topic(topic_name, assignments={0: [1], 1: [2]})
        kill_and_expire(second)
        wait_until(lambda: admin.describe_topics([topic_name])[topic_name].partitions[1].leader is None)
    done = kbroker("transaction", "find-hanging", "-b", first.bootstrap)
    assert done.returncode == 1
    assert done.stderr == f"kbroker: without a leader, so not looked at: {topic_name}-1\n"
    done = kbroker("transaction", "find-hanging", "-b", first.bootstrap, "--broker", "1")
    assert (done.returncode, done.stderr) == (0, "no hanging transactions\n")


def test_what_to_abort_is_said_in_one_of_two_ways(topic: str) -> None:
    for options in ((), ("x", "--hanging", f"{topic}:0"), ("--hanging", f"{topic}:0"), ("x", "--start-offset", "1")):
        assert kbroker("transaction", "abort", *options).returncode == 2
    assert kbroker("transaction", "abort", "--hanging", topic, "--start-offset", "0").returncode == 2

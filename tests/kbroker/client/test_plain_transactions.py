"""Transactions taken over, found and ended without their producers."""

import itertools
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kbroker.client.errors import BrokerError, ProducerFencedError
from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_connection import PlainConnection
from kbroker.client.plain_transactions import Ended, Owner, PlainTransactions
from kbroker.client.range_reader import RangeReader
from kbroker.cluster.topic_names import TRANSACTIONS_TOPIC
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.java_hash import partition_for
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.offsets import LATEST
from kbroker.protocol.messages.transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kbroker.protocol.records.batch import split_batches

TIMEOUT_MS = 30_000


def committed(cluster: PlainCluster, topic: str, partition: int) -> list[bytes]:
    end = cluster.offsets([(topic, partition)], LATEST)[topic, partition]
    return [value for batch in RangeReader(cluster, topic, partition, 0, end) for value in batch["value"].to_pylist()]


def test_a_record_is_read_once_its_transaction_is_committed(bootstrap: str, topic: str) -> None:
    with PlainCluster(bootstrap, {"isolation_level": "read_committed"}) as cluster:
        transactions = PlainTransactions(cluster)
        owner = transactions.take(topic, TIMEOUT_MS)
        transactions.write(owner, (topic, 1), b"key", b"one", 0)
        transactions.write(owner, (topic, 1), b"key", b"one", 0)  # an answer was lost: the broker knows it
        assert committed(cluster, topic, 1) == []
        assert transactions.states([owner]) == {owner: "Ongoing"}
        assert transactions.open_ones(topic) == [topic]
        for _ in range(2):  # who comes later finds it done
            assert transactions.end([owner], commit=True) == {owner: Ended(ErrorCode.NONE, owner)}
        assert transactions.end([owner], commit=False) == {owner: Ended(ErrorCode.INVALID_TXN_STATE, owner)}
        assert transactions.open_ones(topic) == []
        transactions.write(owner, (topic, 1), b"key", b"two", 1)
        assert transactions.end([owner], commit=False) == {owner: Ended(ErrorCode.NONE, owner)}
        successor = transactions.take(topic, TIMEOUT_MS)  # waits for the markers
        assert committed(cluster, topic, 1) == [b"one"]
        assert transactions.states([owner, successor]) == {owner: "", successor: "Empty"}


def test_who_takes_over_aborts_what_was_open_and_the_other_is_fenced(bootstrap: str, topic: str) -> None:
    with PlainCluster(bootstrap, {"isolation_level": "read_committed"}) as cluster:
        transactions = PlainTransactions(cluster)
        first = transactions.take(topic, TIMEOUT_MS)
        transactions.write(first, (topic, 0), b"key", b"lost", 0)
        second = transactions.take(topic, TIMEOUT_MS)
        assert transactions.open_ones(topic) == []
        assert transactions.end([first], commit=True) == {first: Ended(ErrorCode.PRODUCER_FENCED, first)}
        with pytest.raises(ProducerFencedError):
            transactions.write(first, (topic, 0), b"key", b"late", 1)
        assert transactions.states([first, second]) == {first: "", second: "Empty"}
        assert committed(cluster, topic, 0) == []


def test_many_transactions_end_at_once_each_with_its_own_outcome(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.client.plain_transactions.AT_ONCE", 2)
    with PlainCluster(bootstrap) as cluster:
        transactions = PlainTransactions(cluster)
        owners = [transactions.take(f"{topic}-{number}", TIMEOUT_MS) for number in range(5)]
        for number, owner in enumerate(owners):
            transactions.write(owner, (topic, number % 3), b"key", b"value", 0)
        for connection in transactions._coordinators.values():
            connection.close()  # as a coordinator does that goes away
        unknown = Owner(f"{topic}-nobody", 1, 1)
        outcomes = transactions.end([*owners[1:], unknown], commit=True)
        refused = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        errors = {owner: ended.error for owner, ended in outcomes.items()}
        assert errors == {**dict.fromkeys(owners[1:], ErrorCode.NONE), unknown: refused}
        assert transactions.open_ones(topic) == [f"{topic}-0"]
        assert transactions.states([owners[0], unknown]) == {owners[0]: "Ongoing", unknown: ""}


def test_states_are_asked_of_each_coordinator_at_once(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[str]] = []
    send = PlainConnection.send

    def noted(self: PlainConnection, *messages: Any, version: int | None = None) -> None:
        asked.extend(each.transactional_ids for each in messages if isinstance(each, DescribeTransactionsRequest))
        send(self, *messages, version=version)

    monkeypatch.setattr(PlainConnection, "send", noted)
    with PlainCluster(bootstrap) as cluster:
        transactions = PlainTransactions(cluster)
        owners = [transactions.take(f"{topic}-{number}", TIMEOUT_MS) for number in range(5)]
        unknown = Owner(f"{topic}-nobody", 1, 1)
        states = transactions.states([*owners, replace(owners[0], epoch=7), unknown])
        assert states == {**dict.fromkeys(owners, "Empty"), replace(owners[0], epoch=7): "", unknown: ""}
        assert transactions.states([]) == {}
    assert [sorted(set(ids)) for ids in asked] == [sorted({each.transactional_id for each in (*owners, unknown)})]


def test_an_id_that_its_coordinator_says_nothing_of_is_named(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = PlainConnection.receive

    def forgetful(self: PlainConnection, timeout: float | None = None) -> Any:
        answer = receive(self, timeout)
        if isinstance(answer, DescribeTransactionsResponse):
            answer.transaction_states = answer.transaction_states[1:]
        return answer

    with PlainCluster(bootstrap) as cluster:
        transactions = PlainTransactions(cluster)
        owner = transactions.take(topic, TIMEOUT_MS)
        monkeypatch.setattr(PlainConnection, "receive", forgetful)
        with pytest.raises(BrokerError, match=f"says nothing of transactional id {topic}"):
            transactions.states([owner])


def test_transactions_of_one_coordinator_are_ended_by_a_few_appends(broker: BrokerProcess, topic_name: str) -> None:
    topic = topic_name
    with PlainCluster(broker.bootstrap) as cluster:
        cluster.create_topic(topic, 3, 1, {})
        transactions = PlainTransactions(cluster)
        transactions.take(topic, TIMEOUT_MS)
        count = len(cluster.partitions([TRANSACTIONS_TOPIC]))
        place = (TRANSACTIONS_TOPIC, partition_for(topic, count))
        ids = (f"{topic}-{number}" for number in itertools.count())
        alike = [each for each in itertools.islice(ids, 100 * count) if partition_for(each, count) == place[1]][:20]
        owners = [transactions.take(each, TIMEOUT_MS) for each in alike]
        for number, owner in enumerate(owners):
            transactions.write(owner, (topic, number % 3), b"key", b"value", 0)
        before = cluster.offsets([place], LATEST)[place]
        assert {ended.error for ended in transactions.end(owners, commit=True).values()} == {ErrorCode.NONE}
        deadline = time.monotonic() + 30
        while cluster.offsets([place], LATEST)[place] < before + 2 * len(owners):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        topics = FetchRequest.FetchTopic(
            topic=place[0],
            partitions=[
                FetchRequest.FetchPartition(partition=place[1], fetch_offset=before, partition_max_bytes=1 << 20)
            ],
        )
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topics])
        answer = cluster.connection_for(place).request(request, 11)
        batches = split_batches(bytes(answer.responses[0].partitions[0].records))
        assert len(batches) <= len(owners)  # each alone would make two


def test_no_coordinator_that_answers_is_told_after_the_patience() -> None:
    with PlainCluster("127.0.0.1:1", retry_for=0.2) as cluster, pytest.raises(TimeoutError, match=r"127\.0\.0\.1:1"):
        PlainTransactions(cluster).take("etl", TIMEOUT_MS)


@contextmanager
def silent_after_its_versions(broker: BrokerProcess) -> Iterator[PlainConnection]:
    """Yield a connection to a peer that tells the broker's versions, and then never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as client, socket.create_connection(("127.0.0.1", broker.port)) as real:
                real.sendall(client.recv(1 << 16))
                length = real.recv(4, socket.MSG_WAITALL)
                client.sendall(length + real.recv(int.from_bytes(length), socket.MSG_WAITALL))
                while client.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        connection = PlainConnection("127.0.0.1", server.getsockname()[1], client_id="test", timeout=60)
        yield connection
        connection.close()
        thread.join(30)


def test_one_question_that_is_never_answered_does_not_use_up_the_patience(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.client.plain_transactions.TRIES", 100)
    with PlainCluster(broker.bootstrap, retry_for=30) as cluster, silent_after_its_versions(broker) as hangs:
        transactions = PlainTransactions(cluster)
        transactions._coordinators[topic_name] = hangs
        owner = transactions.take(topic_name, TIMEOUT_MS)
        assert not hangs.is_open
        assert transactions.states([owner]) == {owner: "Empty"}

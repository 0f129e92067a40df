"""Transactions taken over, found and ended without their producers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kbroker.client.errors import ProducerFencedError
from kbroker.client.plain_cluster import LATEST, PlainCluster
from kbroker.client.plain_connection import PlainConnection
from kbroker.client.plain_transactions import Ended, Owner, PlainTransactions
from kbroker.client.range_reader import RangeReader
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode

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

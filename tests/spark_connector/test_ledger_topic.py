"""The compacted topic of ledgers."""

import threading
from collections.abc import Iterator

import pytest

from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_transactions import PlainTransactions

ledger_topic = pytest.importorskip("kbroker.spark_connector.ledger_topic")
TIMEOUT_MS = 30_000


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[PlainCluster]:
    with PlainCluster(bootstrap, {"isolation_level": "read_committed"}) as made:
        yield made


def test_the_newest_committed_value_of_each_key_is_read(cluster: PlainCluster, topic_name: str) -> None:
    ledger = ledger_topic.LedgerTopic(cluster, topic_name)
    ledger.ensure()
    ledger.ensure()
    assert len(cluster.partitions([topic_name])) == ledger_topic.PARTITIONS
    place = ledger.place_of("a query")
    assert ledger.read(place) == {}
    transactions = PlainTransactions(cluster)
    owner = transactions.take(topic_name, TIMEOUT_MS)
    for number, (key, value) in enumerate([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None)]):
        transactions.write(owner, place, key, value, number)
        transactions.end([owner], commit=True)
        found = ledger.read(place)
        assert found.get(key) == value
    assert found == {b"a": b"2"}
    transactions.write(owner, place, b"a", b"aborted", 4)
    transactions.end([owner], commit=False)
    assert ledger.read(place) == {b"a": b"2"}
    ledger_topic._known.clear()
    assert ledger.read(place) == {b"a": b"2"}, "as another process reads it"


@pytest.mark.slow
def test_another_querys_open_transaction_hides_nothing_it_is_waited_for(
    cluster: PlainCluster, topic_name: str, bootstrap: str
) -> None:
    ledger = ledger_topic.LedgerTopic(cluster, topic_name)
    ledger.ensure()
    place = ledger.place_of("a query")
    transactions = PlainTransactions(cluster)
    other, own = (transactions.take(f"{topic_name}-{name}", TIMEOUT_MS) for name in ("other", "own"))
    transactions.write(other, place, b"other", b"1", 0)
    transactions.write(own, place, b"own", b"decided", 0)
    transactions.end([own], commit=True)
    found: list[dict[bytes, bytes]] = []

    def read() -> None:
        with PlainCluster(bootstrap, {"isolation_level": "read_committed"}) as another:
            found.append(ledger_topic.LedgerTopic(another, topic_name).read(place))

    reading = threading.Thread(target=read)
    reading.start()
    reading.join(0.5)
    assert not found, "the decision was not seen, and not waited for"
    transactions.end([other], commit=False)
    reading.join(30)
    assert found == [{b"own": b"decided"}]

"""Transactions listed, described and ended by an administrator."""

import time
from collections.abc import Iterator

import pytest

from kbroker import (
    Admin,
    Consumer,
    FencedError,
    InvalidRequestError,
    Producer,
    TopicPartition,
    TransactionalIdNotFoundError,
)
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.records.builder import BatchBuilder
from tests.kbroker.client.topics import produce_batch, wait_until

pytestmark = pytest.mark.slow
HANGING_ID = 123_456_789
VERIFIED = {ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE}
"""How a broker refuses a batch of no transaction: before it hears of its setting, and while it does."""


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as admin:
        yield admin


@pytest.fixture
def hanging(bootstrap: str, admin: Admin, topic: str) -> TopicPartition:
    """A partition with a record of a transaction that no coordinator knows."""
    key = TopicPartition(topic, 1)
    (broker,) = (broker.id for broker in admin.describe_cluster().brokers)
    builder = BatchBuilder()
    builder.append(None, b"hangs", (), int(time.time() * 1000))
    batch = bytes(builder.build(HANGING_ID, 0, 0, True))
    admin.alter_configs("broker", broker, {"transaction.partition.verification.enable": "false"})
    try:
        deadline = time.monotonic() + 20
        while (code := produce_batch(bootstrap, topic, 1, batch, topic)) in VERIFIED:
            assert time.monotonic() < deadline, "a broker hears of its setting a little later"
            time.sleep(0.05)
        assert code is ErrorCode.NONE
    finally:
        admin.alter_configs("broker", broker, {"transaction.partition.verification.enable": None})
    return key


def test_an_open_transaction_is_listed_and_described(bootstrap: str, admin: Admin, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic, transaction_timeout_ms=47_000) as producer:
        producer.begin()
        producer.send(topic, b"a", partition=0)
        producer.send(topic, b"b", partition=2)
        producer.flush(20)
        found = admin.describe_transactions([topic])[topic]
        assert (found.state, found.timeout_ms, found.transactional_id) == ("Ongoing", 47_000, topic)
        assert found.partitions == (TopicPartition(topic, 0), TopicPartition(topic, 2))
        assert found.started_ms is not None
        assert abs(found.started_ms / 1000 - time.time()) < 60
        listed = admin.list_transactions(states=["Ongoing"])
        assert listed[topic].producer_id == found.producer_id
        assert topic not in admin.list_transactions(states=["Empty"])
        assert list(admin.list_transactions(producer_ids=[found.producer_id])) == [topic]
        key = TopicPartition(topic, 2)
        (one,) = admin.describe_producers([key])[key]
        assert (one.producer_id, one.producer_epoch) == (found.producer_id, found.producer_epoch)
        assert (one.last_sequence, one.transaction_start_offset) == (0, 0)
        assert admin.find_hanging_transactions([key], longest_ms=0) == []
        producer.commit()
        wait_until(lambda: admin.describe_producers([key])[key][0].transaction_start_offset is None)


def test_what_is_not_known_is_said(admin: Admin, topic: str) -> None:
    with pytest.raises(TransactionalIdNotFoundError, match=topic):
        admin.describe_transactions([topic])
    with pytest.raises(TransactionalIdNotFoundError, match=topic):
        admin.abort_transaction(topic)
    with pytest.raises(InvalidRequestError, match="no state Sleeping"):
        admin.list_transactions(states=["Sleeping"])


def test_the_transaction_of_an_id_is_aborted_and_its_producer_shut_out(
    bootstrap: str, admin: Admin, topic: str
) -> None:
    with Producer(bootstrap, transactional_id=topic) as producer:
        producer.begin()
        producer.send(topic, b"a", partition=0).result(20)
        admin.abort_transaction(topic)
        assert admin.describe_transactions([topic])[topic].started_ms is None
        with pytest.raises(FencedError):
            producer.commit()
    ends = admin.list_offsets([TopicPartition(topic, 0)], read_committed=True)
    assert ends[TopicPartition(topic, 0)].offset == 2


def test_who_produces_under_an_id_is_fenced(bootstrap: str, admin: Admin, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic) as producer:
        producer.begin()
        producer.send(topic, b"lost", partition=0).result(20)
        ((name, (producer_id, epoch)),) = admin.fence_producers([topic]).items()
        assert (name, producer_id) == (topic, admin.describe_transactions([topic])[topic].producer_id)
        assert epoch > 0
        with pytest.raises(FencedError):
            producer.commit()
        again = admin.fence_producers([topic])[topic]
        assert again == (producer_id, epoch + 1)


def test_a_transaction_that_nobody_will_end_is_found_and_ended(
    bootstrap: str, admin: Admin, topic: str, hanging: TopicPartition
) -> None:
    assert admin.list_offsets([hanging], read_committed=True)[hanging].offset == 0
    assert admin.find_hanging_transactions([hanging]) == []  # it might be a live one's
    (found,) = admin.find_hanging_transactions(longest_ms=0)
    assert (found.partition, found.transactional_id) == (hanging, "")
    assert (found.producer.producer_id, found.producer.transaction_start_offset) == (HANGING_ID, 0)
    admin.abort_hanging(found)
    assert admin.find_hanging_transactions(longest_ms=0) == []
    with Producer(bootstrap) as producer:
        producer.send(topic, b"behind", partition=1).result(20)
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    with Consumer(bootstrap, **settings) as consumer:
        consumer.assign([hanging])
        assert [record.value for record in consumer.poll(10)] == [b"behind"]

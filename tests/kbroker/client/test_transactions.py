"""Transactions of the blocking and the asyncio producer, against a real coordinator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from kbroker import (
    AbortableError,
    Admin,
    ConfigurationError,
    Consumer,
    FencedError,
    IllegalState,
    Producer,
    TransactionTimedOut,
    UnstableOffsetCommitError,
    aio,
)
from kbroker.client.errors import BrokerError
from kbroker.client.plain_cluster import PlainCluster
from kbroker.client.plain_transactions import Owner, PlainTransactions
from kbroker.client.types import TopicPartition
from kbroker.protocol.errors import ErrorCode
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.client.topics import wait_until

pytestmark = pytest.mark.slow

FOLLOWING = {"transactional_id": "follower", "metadata_max_age_ms": 50}


def read(bootstrap: str, topic: str, isolation_level: str = "read_committed") -> list[bytes | None]:
    """All values that can be read once every transaction has its markers, sorted."""
    until_ended(bootstrap, topic)
    settings = {"auto_offset_reset": "earliest", "isolation_level": isolation_level, "fetch_max_wait_ms": 50}
    with Consumer(bootstrap, **settings) as consumer:
        consumer.subscribe([topic])
        values: list[bytes | None] = []
        while any(consumer.lag().values()):
            values += [record.value for record in consumer.poll(0.1)]
        return sorted(values)  # type: ignore[type-var]


def until_ended(bootstrap: str, topic: str) -> None:
    """A commit is answered before its markers are written: wait for what is committed to reach the end."""
    keys = [TopicPartition(topic, partition) for partition in range(3)]
    level = {"isolation_level": "read_committed"}
    with Consumer(bootstrap) as everything, Consumer(bootstrap, **level) as committed:
        wait_until(lambda: committed.end_offsets(keys) == everything.end_offsets(keys))


def numbered(prefix: str, count: int) -> list[bytes]:
    return sorted(f"{prefix}{number}".encode() for number in range(count))


def send(producer: Producer, topic: str, prefix: str, count: int = 6) -> None:
    for number in range(count):
        producer.send(topic, f"{prefix}{number}".encode(), partition=number % 3)


def state_of(bootstrap: str, transactional_id: str) -> str:
    with Admin(bootstrap) as admin:
        return admin.describe_transactions([transactional_id])[transactional_id].state


def given_up(producer: Producer, work: Callable[[], object]) -> None:
    """Do some work in a transaction that an exception ends."""

    def block() -> None:
        with producer.transaction():
            work()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()


def test_what_a_block_sends_is_committed_at_its_end_and_aborted_by_an_exception(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic) as producer:
        with producer.transaction():
            send(producer, topic, "a")
        given_up(producer, lambda: (send(producer, topic, "b"), producer.flush(20)))
        with producer.transaction() as same:
            assert same is producer
            send(producer, topic, "c")
    assert read(bootstrap, topic) == numbered("a", 6) + numbered("c", 6)
    assert read(bootstrap, topic, "read_uncommitted") == [value for prefix in "abc" for value in numbered(prefix, 6)]


async def test_the_asyncio_producer_commits_and_aborts_alike(bootstrap: str, topic: str) -> None:
    async with aio.Producer(bootstrap, transactional_id=topic) as producer:
        async with producer.transaction():
            await producer.send(topic, b"a", partition=0)
        for fails, kind in ((True, ZeroDivisionError), (False, asyncio.CancelledError)):
            is_sent = asyncio.Event()
            task = asyncio.create_task(sent_in_block(producer, topic, is_sent, fails))
            await is_sent.wait()
            if not fails:
                task.cancel()
            with pytest.raises(kind):
                await task
        async with producer.transaction():
            await producer.send(topic, b"d", partition=0)
    assert await asyncio.to_thread(read, bootstrap, topic) == [b"a", b"d"]


async def sent_in_block(producer: aio.Producer, topic: str, is_sent: asyncio.Event, fails: bool) -> None:
    async with producer.transaction():
        await producer.send_and_wait(topic, b"x", partition=0)
        is_sent.set()
        if fails:
            raise ZeroDivisionError
        await asyncio.sleep(60)


def test_begin_commit_and_abort_by_hand(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic) as producer:
        producer.begin()
        send(producer, topic, "a", 3)
        producer.commit()
        producer.begin()
        send(producer, topic, "b", 3)
        producer.abort()
        producer.begin()
        send(producer, topic, "c", 3)
        producer.commit()
        with producer.transaction():
            send(producer, topic, "d", 3)
            producer.flush(20)
            producer.abort()  # the block's end has nothing left to do
    assert read(bootstrap, topic) == numbered("a", 3) + numbered("c", 3)


def test_calls_out_of_turn_say_what_comes_first(bootstrap: str, topic: str) -> None:
    table = pa.table({"v": [b"1"]})
    with Producer(bootstrap, transactional_id=topic) as producer:
        for call in (
            lambda: producer.send(topic, b"x"),
            lambda: producer.send_arrow(topic, table, value="v"),
            producer.commit,
            producer.abort,
            lambda: producer.send_offsets({(topic, 0): 1}, "g"),
        ):
            with pytest.raises(IllegalState, match=r"not begun.*begin\(\)"):
                call()
        producer.begin()
        with pytest.raises(IllegalState, match="open already"):
            producer.begin()
        producer.abort()
    with Producer(bootstrap) as plain, pytest.raises(ConfigurationError, match="no transactional_id"):
        plain.begin()
    assert read(bootstrap, topic, "read_uncommitted") == []


def test_a_transaction_without_anything_ends_without_a_word(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic) as producer:
        for _ in range(3):
            with producer.transaction():
                pass
        producer.begin()
        producer.abort()
        with producer.transaction():
            producer.send_offsets({}, "g")
            send(producer, topic, "a", 1)
    assert read(bootstrap, topic) == [b"a0"]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_tables_and_large_batches_are_part_of_the_transaction(bootstrap: str, topic: str, compression: str) -> None:
    rows = 20_000
    table = pa.table({"v": [b"%d" % number * 20 for number in range(rows)]})
    settings = {"transactional_id": topic, "compression": compression, "arrow_batch_size": 50_000}
    with Producer(bootstrap, **settings) as producer:
        with producer.transaction():
            producer.send_arrow(topic, table, value="v")
            for number in range(2_000):
                producer.send(topic, b"%d" % number * 40, partition=1)
        given_up(producer, lambda: producer.send_arrow(topic, table, value="v").result(30))
    assert len(read(bootstrap, topic)) == rows + 2_000
    assert len(read(bootstrap, topic, "read_uncommitted")) == 2 * rows + 2_000


def test_what_was_not_sent_when_a_transaction_is_aborted_says_so(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic, linger_ms=10_000) as producer:
        producer.begin()
        delivery = producer.send(topic, b"a", partition=0)
        producer.abort()
        with pytest.raises(AbortableError, match="aborted"):
            delivery.result(10)
        with producer.transaction():
            producer.send(topic, b"b", partition=0)
    assert read(bootstrap, topic, "read_uncommitted") == [b"b"]


def test_a_failed_delivery_fails_the_commit_which_names_the_first_cause(bootstrap: str, topic: str) -> None:
    small = f"{topic}-small"
    with Admin(bootstrap) as admin:
        admin.create_topic(small, 1, 1, {"max.message.bytes": "500"})
    with Producer(bootstrap, transactional_id=topic, linger_ms=0) as producer:
        producer.begin()
        producer.send(topic, b"a", partition=0).result(20)
        producer.send(small, b"x" * 1000)
        with pytest.raises(AbortableError, match=f"MESSAGE_TOO_LARGE.*{small}-0"):
            producer.commit()
        with pytest.raises(AbortableError, match="MESSAGE_TOO_LARGE"):
            producer.send(topic, b"b")
        with pytest.raises(IllegalState, match="failed already"):
            producer.begin()
        producer.abort()
        with pytest.raises(AbortableError, match="MESSAGE_TOO_LARGE"), producer.transaction():
            producer.send(small, b"x" * 1000)
        with producer.transaction():
            producer.send(topic, b"c", partition=0)
    assert read(bootstrap, topic) == [b"c"]


def test_rows_that_come_into_no_batch_fail_the_transaction(bootstrap: str, topic: str) -> None:
    table = pa.table({"n": ["x" * 3_000]})
    with Producer(bootstrap, transactional_id=topic, max_request_size=2_000) as producer:
        producer.begin()
        producer.send(topic, b"a", partition=0).result(20)
        delivery = producer.send_arrow(topic, table, value="json")
        with pytest.raises(AbortableError, match="3008 bytes, max_request_size"):
            producer.commit()
        assert delivery.exception(10) is not None
        producer.abort()
    assert read(bootstrap, topic) == []


def test_who_begins_with_the_same_id_shuts_the_other_out(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic) as old, Producer(bootstrap, transactional_id=topic) as new:
        old.begin()
        old.send(topic, b"old", partition=0).result(20)
        with new.transaction():
            new.send(topic, b"new", partition=0)
        with pytest.raises(FencedError, match=r"another producer.*is not committed"):
            old.commit()
        for call in (old.begin, old.commit, old.abort, lambda: old.send(topic, b"late")):
            with pytest.raises(FencedError, match="another producer"):
                call()
        with new.transaction():
            new.send(topic, b"newer", partition=0)
    assert read(bootstrap, topic) == [b"new", b"newer"]


def test_who_was_away_for_too_long_leaves_alone_what_its_successor_has_open(bootstrap: str, topic: str) -> None:
    with (
        Producer(bootstrap, transactional_id=topic, transaction_timeout_ms=300) as old,
        Producer(bootstrap, transactional_id=topic) as new,
    ):
        old.begin()
        old.send(topic, b"old", partition=0).result(20)
        with new.transaction():
            new.send(topic, b"new", partition=0).result(20)
            time.sleep(0.4)  # the old one's time is over: its transaction may have been aborted for that
            with pytest.raises(FencedError, match="make a new producer"):
                old.commit()
    assert read(bootstrap, topic) == [b"new"]


def test_who_hears_from_a_leader_that_it_is_shut_out_is_not_told_to_abort(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic) as old, Producer(bootstrap, transactional_id=topic) as new:
        old.begin()
        old.send(topic, b"old", partition=0).result(20)
        with new.transaction():
            new.send(topic, b"new", partition=0).result(20)
            assert isinstance(old.send(topic, b"late", partition=0).exception(20), BrokerError)
            with pytest.raises(FencedError, match="another producer"):
                old.commit()
    assert read(bootstrap, topic) == [b"new"], "asking who has the id has not ended what its new owner had open"


def test_a_block_whose_producer_is_shut_out_raises_that(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic) as old, Producer(bootstrap, transactional_id=topic) as new:

        def block() -> None:
            with old.transaction():
                old.send(topic, b"old", partition=0).result(20)
                new.begin()

        with pytest.raises(FencedError):
            block()


def test_offsets_count_when_the_transaction_is_committed(bootstrap: str, topic: str) -> None:
    group, key, other = f"{topic}-group", TopicPartition(topic, 1), TopicPartition(topic, 2)
    with Producer(bootstrap, transactional_id=topic) as producer, Admin(bootstrap) as admin:

        def committed() -> dict[int, int]:  # asked for all partitions, Kafka leaves out one whose first is undecided
            found = admin.list_group_offsets(group, [key, other], require_stable=True)
            return {key.partition: offset.offset for key, offset in found.items()}

        with producer.transaction():
            producer.send_offsets({key: 5}, group)
        assert committed() == {1: 5}
        given_up(producer, lambda: producer.send_offsets({key: 6}, group))
        assert committed() == {1: 5}
        with producer.transaction():
            send(producer, topic, "a", 3)
            producer.send_offsets({key: 6, other: 7}, group)
            producer.send_offsets({key: 8}, group)
        assert committed() == {1: 8, 2: 7}


def test_an_administrator_sees_what_is_committed_while_a_transaction_is_open(bootstrap: str, topic: str) -> None:
    group, key = f"{topic}-group", TopicPartition(topic, 1)
    with Producer(bootstrap, transactional_id=topic) as producer, Admin(bootstrap) as admin:
        admin.alter_group_offsets(group, {key: 3})
        producer.begin()
        producer.send_offsets({key: 6}, group)
        assert admin.list_group_offsets(group)[key].offset == 3
        with Admin(bootstrap, request_timeout_ms=500) as hasty, pytest.raises(UnstableOffsetCommitError):
            hasty.list_group_offsets(group, require_stable=True)
        producer.commit()
        assert admin.list_group_offsets(group, require_stable=True)[key].offset == 6


def test_what_is_undecided_or_aborted_is_neither_read_nor_counted(bootstrap: str, topic: str) -> None:
    key = TopicPartition(topic, 0)
    level = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
    with Producer(bootstrap, transactional_id=topic) as producer, Consumer(bootstrap, **level) as consumer:
        with producer.transaction():
            producer.send(topic, b"a", partition=0)  # 0, marker 1
        given_up(producer, lambda: producer.send_and_wait(topic, b"b", partition=0))  # 2, marker 3
        producer.begin()
        producer.send(topic, b"c", partition=0).result(20)  # 4
        consumer.assign([key])
        wait_until(lambda: consumer.end_offsets([key])[key] == 4)
        values: list[bytes | None] = []
        while consumer.position(key) < 4:
            values += [record.value for record in consumer.poll(0.1)]
        assert values == [b"a"]
        assert consumer.lag() == {key: 0}
        with Consumer(bootstrap) as everything:
            assert everything.end_offsets([key]) == {key: 5}
        producer.abort()
        wait_until(
            lambda: (consumer.poll(0.1), consumer.position(key))[1] == 6
        )  # behind the marker, with nothing to give
        assert consumer.lag() == {key: 0}
        consumer.seek_to_beginning()
        columns: list[bytes | None] = []
        while consumer.position(key) < 6:
            columns += [value for batch in consumer.batches(timeout=0.2) for value in batch["value"].to_pylist()]
        assert columns == [b"a"]


def test_a_consumers_positions_are_committed_for_its_member(bootstrap: str, topic: str) -> None:
    by_hand: Mapping[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
    with Producer(bootstrap) as plain:
        send(plain, topic, "in", 9)
    with (
        Producer(bootstrap, transactional_id=topic) as producer,
        Consumer(bootstrap, group_id=topic, **by_hand) as consumer,
    ):
        consumer.subscribe([topic])
        seen = 0
        while seen < 9:
            with producer.transaction():
                seen += len(consumer.poll(1.0))
                producer.send_offsets(consumer)
        assert {key: found and found.offset for key, found in consumer.committed().items()} == consumer.positions
        metadata = consumer.group_metadata()
        stranger = type(metadata)(topic, metadata.generation_id, "stranger")
        with (
            pytest.raises(AbortableError, match=f"offsets of group {topic}.*UNKNOWN_MEMBER_ID"),
            producer.transaction(),
        ):
            producer.send_offsets({(topic, 0): 0}, stranger)
        with pytest.raises(AbortableError, match="ILLEGAL_GENERATION"), producer.transaction():
            producer.send_offsets({(topic, 0): 0}, type(metadata)(topic, 99, metadata.member_id))
        with pytest.raises(TypeError, match="its group"), producer.transaction():
            producer.send_offsets(consumer, topic)
    with (
        Producer(bootstrap, transactional_id=topic) as producer,
        Consumer(bootstrap, group_id=topic) as consumer,
        pytest.raises(ConfigurationError, match="enable_auto_commit=False"),
        producer.transaction(),
    ):
        producer.send_offsets(consumer)


def test_partitions_given_up_in_the_middle_of_a_transaction_fail_it(bootstrap: str, topic: str) -> None:
    """Else what was made of their records would be committed, and made again by who reads them next."""
    member: Mapping[str, Any] = {"group_id": topic, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    with (
        Producer(bootstrap, transactional_id=topic) as producer,
        Consumer(bootstrap, heartbeat_interval_ms=50, **member) as consumer,
        Consumer(bootstrap, **member) as other,
    ):
        with producer.transaction():
            send(producer, topic, "in", 9)
        consumer.subscribe([topic])
        producer.begin()
        wait_until(lambda: len(consumer.poll(1.0, max_records=3)) > 0)
        other.subscribe([topic])
        wait_until(lambda: (other.poll(0.01), consumer.poll(0.01), len(other.assignment()))[2] > 0)
        with pytest.raises(AbortableError, match="poll once in a transaction"):
            producer.send_offsets(consumer)
        producer.abort()
        with producer.transaction():
            consumer.poll(0.1)
            producer.send_offsets(consumer)


def test_a_transaction_that_is_handed_over_is_ended_by_somebody_else(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic) as producer:
        producer.begin()
        assert producer.hand_over() is None, "nothing is in it"
        producer.begin()
        send(producer, topic, "kept-")
        handed = producer.hand_over()
        assert handed is not None
        with pytest.raises(IllegalState):
            producer.commit()
    assert state_of(bootstrap, topic) == "Ongoing", "closing the producer has not aborted it"
    with PlainCluster(bootstrap) as cluster:
        owner = Owner(topic, *handed)
        assert PlainTransactions(cluster).end([owner], commit=True)[owner].error is ErrorCode.NONE
    wait_until(lambda: read(bootstrap, topic) == numbered("kept-", 6))


def test_what_is_not_delivered_is_not_handed_over(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic, max_request_size=3_000_000) as producer:
        producer.begin()
        producer.send(topic, b"x" * 2_000_000)  # larger than the topic takes
        with pytest.raises(AbortableError):
            producer.hand_over()


def test_a_transaction_past_its_time_out_is_told_as_such(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic, transaction_timeout_ms=300) as producer:
        producer.begin()
        producer.send(topic, b"a", partition=0).result(20)
        wait_until(lambda: state_of(bootstrap, topic) == "CompleteAbort")
        with pytest.raises((TransactionTimedOut, FencedError), match=r"open for .* s.*transaction_timeout_ms=300"):
            producer.commit()
    assert read(bootstrap, topic) == []


def test_a_producer_that_is_closed_aborts_what_is_open(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic) as producer:
        producer.begin()
        producer.send(topic, b"a", partition=0).result(20)
    wait_until(lambda: state_of(bootstrap, topic) == "CompleteAbort")
    assert read(bootstrap, topic) == []


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_goes_on_when_its_coordinator_has_forgotten_it(make_broker: MakeBroker, version: int) -> None:
    properties = {
        "kbroker.new.cluster.transaction.version": str(version),
        "transactional.id.expiration.ms": "1000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    bootstrap, topic = make_broker(properties=properties).bootstrap, "forgotten"

    def is_forgotten() -> bool:
        with Admin(bootstrap) as admin:
            try:
                return not admin.describe_transactions([topic])
            except BrokerError as error:
                return error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    def send_whole(name: str) -> None:
        """Each transaction may be forgotten where the machine stands still."""
        for left in reversed(range(20)):
            try:
                with producer.transaction():
                    send(producer, topic, name)
                return
            except AbortableError:
                if not left:
                    raise

    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=3)
    with Producer(bootstrap, transactional_id=topic) as producer:
        send_whole("a")
        wait_until(is_forgotten)
        with pytest.raises(AbortableError, match=r"has forgotten it|INVALID_PRODUCER_ID_MAPPING"):
            with producer.transaction():
                send(producer, topic, "b")
        send_whole("c")
    wait_until(lambda: read(bootstrap, topic) == sorted([*numbered("a", 6), *numbered("c", 6)]))


def test_each_transaction_has_its_own_epoch_where_the_cluster_offers_that(make_broker: MakeBroker) -> None:
    bootstrap = make_broker(properties={"kbroker.new.cluster.transaction.version": "2"}).bootstrap
    topic = "epochs"

    def epoch() -> int:
        with Admin(bootstrap) as admin:
            return admin.describe_transactions([topic])[topic].producer_epoch

    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=3)
    with Producer(bootstrap, transactional_id=topic) as producer:
        with producer.transaction():
            send(producer, topic, "a")
        assert epoch() == 1
        given_up(producer, lambda: (send(producer, topic, "b"), producer.flush(20)))
        with producer.transaction():
            send(producer, topic, "c")
            producer.send_offsets({(topic, 0): 5}, "a-group")
        assert epoch() == 3
        producer.begin()
        send(producer, topic, "d")
        handed = producer.hand_over()
        assert handed is not None
        with PlainCluster(bootstrap) as cluster:
            owner = Owner(topic, *handed)
            (ended,) = PlainTransactions(cluster).end([owner], commit=True).values()
            assert (ended.error, ended.owner) == (ErrorCode.NONE, Owner(topic, handed[0], handed[1] + 1))
        with producer.transaction():
            send(producer, topic, "e")
    assert epoch() == 5
    wait_until(lambda: read(bootstrap, topic) == sorted(each for prefix in "acde" for each in numbered(prefix, 6)))
    with Admin(bootstrap) as admin:
        assert admin.list_group_offsets("a-group")[TopicPartition(topic, 0)].offset == 5


async def test_a_producer_that_runs_for_long_hears_that_the_cluster_offers_epochs_for_each_transaction(
    make_broker: MakeBroker,
) -> None:
    bootstrap = make_broker().bootstrap
    sent: list[bytes | None] = []
    async with aio.Admin(bootstrap) as admin, aio.Producer(bootstrap, **FOLLOWING) as producer:
        await admin.create_topic("t", partitions=3)

        async def epochs() -> tuple[int, int]:
            """Of two transactions, one after the other."""
            found = []
            for number in range(2):
                async with producer.transaction():
                    value = b"%d" % len(sent)
                    await producer.send_and_wait("t", value, partition=number)
                    sent.append(value)
                found.append((await admin.describe_transactions(["follower"]))["follower"].producer_epoch)
            return found[0], found[1]

        first, second = await epochs()
        assert first == second
        connections = dict(producer.cluster._connections)
        for level, by in ((2, 1), (0, 0), (2, 1)):
            await admin.update_feature("transaction.version", level, downgrade=not level)
            async with asyncio.timeout(30):
                while (pair := await epochs()) and pair[1] - pair[0] != by:
                    pass
        assert {key: producer.cluster._connections[key] for key in connections} == connections, "none had to be new"
    assert await asyncio.to_thread(read, bootstrap, "t") == sorted(sent)  # type: ignore[type-var]


async def test_offsets_that_were_given_up_half_way_are_not_committed_as_if_they_were_there(
    bootstrap: str, topic: str
) -> None:
    async with aio.Producer(bootstrap, transactional_id=topic) as producer:
        await producer.begin()
        sending = asyncio.ensure_future(producer.send_offsets({TopicPartition(topic, 0): 5}, f"{topic}-group"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(AbortableError, match="send_offsets was given up"):
            await producer.commit()
        await producer.abort()
        async with producer.transaction():
            await producer.send(topic, b"after", partition=0)
    assert await asyncio.to_thread(read, bootstrap, topic) == [b"after"]

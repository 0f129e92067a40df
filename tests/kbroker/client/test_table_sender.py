"""Tables sent as records, against real brokers."""

import asyncio
import json
import threading
from typing import Any

import pytest

from kbroker import Producer as BlockingProducer
from kbroker.client import errors
from kbroker.client.admin import Admin
from kbroker.client.consumer import Consumer
from kbroker.client.producer import Producer
from kbroker.client.table_delivery import TableNotWritten
from kbroker.protocol.records.partitioner import partition_for_key
from kbroker.protocol.records.record import Record

pa = pytest.importorskip("pyarrow")


async def read(bootstrap: str, topic: str, count: int) -> list[Record]:
    records: list[Record] = []
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([topic])
        while len(records) < count:
            some = await consumer.poll(10)
            assert some
            records += some
    return records


@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_rows_go_where_send_would_send_them_in_order(bootstrap: str, topic: str, compression: str) -> None:
    keys = [b"k%d" % (i % 50) for i in range(20_000)]
    table = pa.table({"k": pa.array(keys, pa.large_binary()), "v": [f"v{i}" for i in range(20_000)]})
    async with Producer(bootstrap, compression=compression) as producer:
        delivery = await producer.send_arrow(topic, table, key="k", value="v", timestamp=1234)
        written = await delivery
    assert written.rows == 20_000
    assert sum(part.rows for part in written.partitions.values()) == 20_000
    last_of_key: dict[Any, int] = {}
    for record in await read(bootstrap, topic, 20_000):
        assert record.value is not None
        assert record.key is not None
        number = int(record.value[1:])
        assert record.key == keys[number]
        assert record.timestamp == 1234
        assert record.partition == partition_for_key(record.key, 3)
        assert written.partitions[record.partition].first <= record.offset <= written.partitions[record.partition].last
        assert last_of_key.get(record.key, -1) < number
        last_of_key[record.key] = number


async def test_records_sent_before_and_after_a_table_keep_their_places(bootstrap: str, topic: str) -> None:
    table = pa.table({"v": [b"%d" % i for i in range(1, 5001)]})
    async with Producer(bootstrap, linger_ms=1000) as producer:
        await producer.send(topic, b"0", partition=1)
        await producer.send_arrow(topic, table.to_batches()[0], value="v", partition=1)
        await producer.send(topic, b"5001", partition=1)
        await producer.flush(30)
    assert [int(record.value or b"") for record in await read(bootstrap, topic, 5002)] == list(range(5002))


async def test_rows_as_json_with_headers_timestamps_and_partitions_of_columns(bootstrap: str, topic: str) -> None:
    header = [[("h", b"1")], None, [("a", None), ("b", b"")]]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([h and [{"key": k, "value": v} for k, v in h] for h in header], kind)
    columns = {"n": [1, 2, None], "at": pa.array([5, 6, 7], pa.timestamp("ms", "UTC")), "p": [2, 2, 2], "h": headers}
    table = pa.table(columns)
    async with Producer(bootstrap) as producer:
        await (await producer.send_arrow(topic, table, value="json", headers="h", partition="p", timestamp="at"))
    records = await read(bootstrap, topic, 3)
    assert [json.loads(record.value or b"") for record in records] == [{"n": 1}, {"n": 2}, {"n": None}]
    assert [record.headers for record in records] == [(("h", b"1"),), (), (("a", None), ("b", b""))]
    assert [(record.partition, record.timestamp) for record in records] == [(2, 5), (2, 6), (2, 7)]


async def test_nulls_and_slices_of_tables_come_through(bootstrap: str, topic: str) -> None:
    values = [None if i % 3 == 0 else b"%d" % i for i in range(1000)]
    table = pa.table({"v": pa.chunked_array([pa.array(values[:500]), pa.array(values[500:])])}).slice(3, 900)
    async with Producer(bootstrap) as producer:
        await (await producer.send_arrow(topic, table, value="v", partition=0, headers=[("source", b"test")]))
    records = await read(bootstrap, topic, 900)
    assert [record.value for record in records] == values[3:903]
    assert records[0].headers == (("source", b"test"),)


async def test_rows_without_a_partition_of_their_own_keep_their_places_among_the_others(
    bootstrap: str, topic: str
) -> None:
    keys = [f"k{i % 7}" for i in range(2_000)]
    homes = [partition_for_key(key.encode(), 3) for key in keys]
    own = [None if i % 3 else home for i, home in enumerate(homes)]
    table = pa.table({"k": keys, "v": [f"{i}" for i in range(2_000)], "p": pa.array(own, pa.int64())})
    async with Producer(bootstrap) as producer:
        assert (await (await producer.send_arrow(topic, table, key="k", value="v", partition="p"))).rows == 2_000
        with pytest.raises(ValueError, match="no partition -1"):
            await producer.send_arrow(topic, pa.table({"v": ["x"] * 2, "p": [None, -1]}), value="v", partition="p")
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for record in await read(bootstrap, topic, 2_000):
        found[record.partition].append(int(record.value or b""))
    assert found == {p: [i for i, home in enumerate(homes) if home == p] for p in found}


async def test_a_row_with_neither_partition_nor_key_goes_anywhere_or_where_the_partitioner_says(
    bootstrap: str, topic: str
) -> None:
    table = pa.table({"v": ["0", "1", "2", "3"], "p": pa.array([None, 1, None, 1], pa.int32())})
    nowhere = pa.table({"v": ["4"], "p": pa.array([None], pa.int32())})
    async with Producer(bootstrap) as producer:
        written = await (await producer.send_arrow(topic, table, value="v", partition="p"))
        assert written.rows == 4
        assert written.partitions[1].rows >= 2
        assert (await (await producer.send_arrow(topic, nowhere, value="v", partition="p"))).rows == 1
    async with Producer(bootstrap, partitioner=lambda topic, key, value, count: int(value or b"") % 3) as producer:
        written = await (await producer.send_arrow(topic, table, value="v", partition="p"))
    assert {partition: part.rows for partition, part in written.partitions.items()} == {0: 1, 1: 2, 2: 1}


async def test_rows_without_keys_are_spread_over_all_partitions(bootstrap: str, topic: str) -> None:
    table = pa.table({"v": [b"x" * 500] * 20_000})
    async with Producer(bootstrap, buffer_memory=1_000_000) as producer:
        delivery = await producer.send_arrow(topic, table, value="v")
        assert producer.statistics()["buffer-available-bytes"] > -2_000_000
        assert set((await delivery).partitions) == {0, 1, 2}


async def test_a_tables_mistakes_are_told_at_the_call(bootstrap: str, topic: str) -> None:
    table = pa.table({"k": [1, 2], "v": ["a", "b" * 2000], "p": [0, 7]})
    async with Producer(bootstrap, max_request_size=1500) as producer:
        with pytest.raises(ValueError, match="no column 'x', only k, v, p"):
            await producer.send_arrow(topic, table, value="x")
        with pytest.raises(TypeError, match="int64, binary or string is wanted"):
            await producer.send_arrow(topic, table, key="k", value="v")
        with pytest.raises(ValueError, match="row 1 has 2000 bytes"):
            await producer.send_arrow(topic, table, value="v")
        with pytest.raises(ValueError, match="no partition 7, the topic has 3"):
            await producer.send_arrow(topic, table, partition="p")
        headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        for pair in (None, {"key": None, "value": b"x"}):
            bad = pa.table({"v": ["a"], "h": pa.array([[pair]], headers)})
            with pytest.raises(ValueError, match="column 'h' has a header without a key"):
                await producer.send_arrow(topic, bad, value="v", headers="h")
        with pytest.raises(TypeError, match="Table or RecordBatch"):
            await producer.send_arrow(topic, [1])
        assert producer.statistics()["request-total"] == 0


async def test_what_fails_is_named_by_partition_and_rows(bootstrap: str, topic_name: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic_name, 2, 1, {"max.message.bytes": "2000"})
    table = pa.table({"v": [b"small"] * 9 + [b"x" * 5000], "p": [0] * 9 + [1]})
    async with Producer(bootstrap) as producer:
        delivery = await producer.send_arrow(topic_name, table, value="v", partition="p")
        with pytest.raises(errors.BrokerError, match=r"1 of 10 rows were not written; first rows 9\.\.9") as caught:
            await delivery
    assert caught.value.partitions[0].rows == 9  # type: ignore[attr-defined]
    (part, error), = caught.value.failures  # type: ignore[attr-defined]  # fmt: skip
    assert (part.partition, part.first, part.last, part.rows) == (1, 9, 9, 1)
    assert isinstance(error, errors.MessageTooLargeError)


def test_the_blocking_producer_sends_tables_too(bootstrap: str, topic: str) -> None:
    table = pa.table({"k": ["a", None, "b"] * 10_000, "v": [b"y" * 100] * 30_000})
    called: list[Any] = []
    with BlockingProducer(bootstrap, buffer_memory=500_000) as producer:
        delivery = producer.send_arrow(topic, table, key="k", value="v")
        delivery.add_done_callback(called.append)
        assert delivery.result(30).rows == 30_000
        assert delivery.done()
        assert producer.send_arrow(topic, table.slice(0, 0), value="v").result(60).rows == 0
        assert producer.send_arrow(topic, table, value="json").result(30).rows == 30_000
    assert called == [delivery]


async def test_tables_are_encoded_beside_the_loop(bootstrap: str, topic: str) -> None:
    threads = set()

    def note(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        threads.add(threading.current_thread())
        return 0

    async with Producer(bootstrap, partitioner=note, compression="gzip") as producer:
        await (await producer.send_arrow(topic, pa.table({"v": [b"x"] * 10}), value="v"))
    assert threads
    assert threading.current_thread() not in threads


async def test_a_table_sent_while_the_producer_is_closed_has_an_outcome_for_each_row(
    bootstrap: str, topic: str
) -> None:
    rows = 200_000
    table = pa.table({"v": [b"x" * 100] * rows})
    producer = Producer(bootstrap, arrow_batch_size=10_000)
    await producer.send_and_wait(topic, b"first")
    sending = asyncio.create_task(producer.send_arrow(topic, table, value="v"))
    while producer.statistics()["request-total"] < 3:  # noqa: ASYNC110 - the producer has no event for that
        await asyncio.sleep(0)
    await producer.close()
    async with asyncio.timeout(30):
        delivery = await sending
        with pytest.raises(TableNotWritten) as raised:
            await delivery
    written = sum(part.rows for part in raised.value.partitions.values())
    assert 0 < written < rows
    assert raised.value.failed_rows == rows - written
    assert all(part.last - part.first + 1 >= part.rows for part, _ in raised.value.failures), "they lie in that range"
    assert all(isinstance(error, errors.ClientClosed) for _, error in raised.value.failures)


async def test_cancelling_send_arrow_leaves_a_producer_that_goes_on(bootstrap: str, topic: str) -> None:
    table = pa.table({"v": [b"x" * 100] * 200_000})
    async with Producer(bootstrap, arrow_batch_size=10_000) as producer:
        await producer.send_and_wait(topic, b"first")
        sending = asyncio.create_task(producer.send_arrow(topic, table, value="v"))
        while producer.statistics()["record-send-total"] < 10_000:  # noqa: ASYNC110 - the producer has no event for that
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await producer.flush(30)
        before = producer.statistics()["record-acknowledged-total"]
        await producer.send_and_wait(topic, b"after")
        assert producer.statistics()["record-acknowledged-total"] > before
        assert producer.statistics()["record-error-total"] == 0

"""Ranges of a partition as Arrow batches, from a real broker."""

import threading
import time
from collections import deque
from typing import Any

import pytest

from kbroker import Admin
from kbroker.client.errors import (
    CorruptMessageError,
    NotConnected,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicIdError,
    error_for,
)
from kbroker.client.plain_cluster import PlainCluster
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.fetch import FetchResponse
from kbroker.protocol.messages.offsets import LATEST
from kbroker.protocol.records.batch import split_batches
from kbroker.protocol.records.builder import BatchBuilder
from tests.fixtures.brokers import kill_and_expire
from tests.kbroker.client.topics import create_topic, produce_values

pytest.importorskip("pyarrow")
range_reader = pytest.importorskip("kbroker.client.range_reader")


def fill(broker: BrokerProcess, topic: str, batches: int = 20, rows: int = 50) -> None:
    create_topic(broker.bootstrap, topic, partitions=1)
    for batch in range(batches):
        produce_values(broker.bootstrap, topic, 0, [b"%d" % (batch * rows + row) for row in range(rows)])


def read(cluster: PlainCluster, topic: str, start: int, end: int, **limits: Any) -> list[tuple[int, bytes]]:
    rows = []
    for batch in range_reader.RangeReader(cluster, topic, 0, start, end, **limits):
        batch.validate(full=True)
        rows += list(zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True))
    return rows


def test_a_range_is_exact_wherever_batches_begin(broker: BrokerProcess, topic_name: str) -> None:
    fill(broker, topic_name)
    with PlainCluster(broker.bootstrap) as cluster:
        for start, end in ((0, 1000), (7, 993), (50, 51), (49, 50), (999, 1000), (10, 10)):
            assert read(cluster, topic_name, start, end) == [(n, b"%d" % n) for n in range(start, end)]


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, {"max_rows": 7}),
        ({}, {"max_bytes": 100}),
        ({"max.partition.fetch.bytes": 1}, {}),
        ({"max.partition.fetch.bytes": 3000}, {"max_rows": 33}),
    ],
)
def test_small_limits_change_the_batches_and_not_the_rows(
    broker: BrokerProcess, topic_name: str, options: dict[str, int], limits: dict[str, int]
) -> None:
    fill(broker, topic_name)
    with PlainCluster(broker.bootstrap, options) as cluster:
        assert read(cluster, topic_name, 3, 997, **limits) == [(n, b"%d" % n) for n in range(3, 997)]


def test_a_small_range_is_not_fetched_with_all_that_follows_it(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    values = [b"%05d" % n * 4_000 for n in range(100)]
    for first in range(0, 100, 5):
        produce_values(broker.bootstrap, topic_name, 0, values[first : first + 5])
    fetched, find = [], range_reader.RangeReader._partition

    def weigh(self: Any, answer: Any, offset: int) -> Any:
        found = find(self, answer, offset)
        fetched.append(len(found.records))
        return found

    monkeypatch.setattr(range_reader.RangeReader, "_partition", weigh)
    with PlainCluster(broker.bootstrap) as cluster:
        rows = [value for _, value in read(cluster, topic_name, 5, 15)]
    assert rows == values[5:15]
    assert 200_000 < sum(fetched) < 400_000


def test_an_offset_that_is_gone_is_an_error_with_the_place(broker: BrokerProcess, topic_name: str) -> None:
    fill(broker, topic_name, batches=1)
    with (
        PlainCluster(broker.bootstrap, retry_for=1) as cluster,
        pytest.raises(OffsetOutOfRangeError, match=f"{topic_name}-0"),
    ):
        read(cluster, topic_name, 1_000, 1_001)


@pytest.mark.slow
def test_an_end_that_never_comes_ends_with_the_retries(broker: BrokerProcess, topic_name: str) -> None:
    fill(broker, topic_name, batches=1)
    with (
        PlainCluster(broker.bootstrap, retry_for=0.5) as cluster,
        pytest.raises(RequestTimedOutError, match="nothing came at offset 50"),
    ):
        read(cluster, topic_name, 0, 51)


def test_reading_goes_on_when_the_broker_was_killed_and_came_back(own_broker: BrokerProcess, topic_name: str) -> None:
    fill(own_broker, topic_name)
    options = {"max.partition.fetch.bytes": 2_000}
    with PlainCluster(own_broker.bootstrap, options, retry_for=30) as cluster:
        reader = iter(range_reader.RangeReader(cluster, topic_name, 0, 0, 1000, max_rows=50))
        rows = next(reader)["offset"].to_pylist()

        def bounce() -> None:
            kill_and_expire(own_broker)
            time.sleep(0.2)
            own_broker.start()

        bouncing = threading.Thread(target=bounce)
        bouncing.start()
        for batch in reader:
            rows += batch["offset"].to_pylist()
        bouncing.join(30)
        assert rows == list(range(1000))


def test_a_reader_that_was_held_up_has_all_its_patience_left(broker: BrokerProcess, topic_name: str) -> None:
    fill(broker, topic_name)
    with PlainCluster(broker.bootstrap, {"max.partition.fetch.bytes": 2_000, "request_timeout_ms": 500}) as cluster:
        reader = iter(range_reader.RangeReader(cluster, topic_name, 0, 0, 1000, max_rows=50))
        rows = next(reader)["offset"].to_pylist()
        time.sleep(0.6)  # whoever takes the rows is slow
        cluster.close()  # and the connection ends meanwhile
        for batch in reader:
            rows += batch["offset"].to_pylist()
        assert rows == list(range(1000))


def test_offsets_that_are_gone_are_left_out_on_request(broker: BrokerProcess, topic_name: str) -> None:
    fill(broker, topic_name, batches=2)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({(topic_name, 0): 50})
    with PlainCluster(broker.bootstrap) as cluster:
        reader = range_reader.RangeReader(cluster, topic_name, 0, 0, 100, skip_gone=True)
        assert [offset for batch in reader for offset in batch["offset"].to_pylist()] == list(range(50, 100))


def test_what_a_leader_of_before_does_not_have_is_not_left_out(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, topic_name, batches=2)
    with PlainCluster(broker.bootstrap) as cluster:
        reader = range_reader.RangeReader(cluster, topic_name, 0, 30, 100, skip_gone=True)
        told, look = [20], reader._partition
        ends, ask = [{(topic_name, 0): 20}], cluster.offsets

        def partition(answer: Any, offset: int) -> Any:
            if told:
                raise error_for(ErrorCode.OFFSET_OUT_OF_RANGE, f"the end is {told.pop()}")
            return look(answer, offset)

        monkeypatch.setattr(reader, "_partition", partition)
        monkeypatch.setattr(
            cluster, "offsets", lambda places, at: ends.pop() if ends and at == LATEST else ask(places, at)
        )
        assert [offset for batch in reader for offset in batch["offset"].to_pylist()] == list(range(30, 100))
        assert not ends


def test_a_topic_made_again_is_not_read_in_place_of_the_planned_one(broker: BrokerProcess, topic_name: str) -> None:
    fill(broker, topic_name, batches=1)
    with PlainCluster(broker.bootstrap, retry_for=5) as cluster:
        cluster.partitions([topic_name])
        planned = cluster.topic_ids[topic_name]
        assert read(cluster, topic_name, 0, 50, topic_id=planned) == [(n, b"%d" % n) for n in range(50)]
        with Admin(broker.bootstrap) as admin:
            admin.delete_topics([topic_name])
        fill(broker, topic_name, batches=1)
        with pytest.raises(UnknownTopicIdError, match="deleted and made again"):
            read(cluster, topic_name, 0, 50, topic_id=planned)


def test_a_reader_given_up_half_way_does_not_disturb_the_next_one(broker: BrokerProcess, topic_name: str) -> None:
    fill(broker, topic_name)
    with PlainCluster(broker.bootstrap, {"max.partition.fetch.bytes": 2_000}) as cluster:
        first = iter(range_reader.RangeReader(cluster, topic_name, 0, 0, 1000, max_rows=10))
        assert next(first).num_rows == 10
        first.close()
        assert read(cluster, topic_name, 500, 503) == [(n, b"%d" % n) for n in (500, 501, 502)]


def test_a_corrupt_batch_is_an_error_with_its_offset_or_left_out(own_broker: BrokerProcess, topic_name: str) -> None:
    fill(own_broker, topic_name, batches=3)
    [log_file] = (own_broker.directory / "data" / f"{topic_name}-0").glob("*.log")
    own_broker.stop()
    data = bytearray(log_file.read_bytes())
    positions = split_batches(data)
    data[positions[1][0] + positions[1][1] - 2] ^= 0xFF
    log_file.write_bytes(data)
    own_broker.start().wait_until_ready(30)
    with PlainCluster(own_broker.bootstrap) as cluster:
        with pytest.raises(CorruptMessageError, match=f"{topic_name}-0: offset 50"):
            read(cluster, topic_name, 0, 150)
        reader = range_reader.RangeReader(cluster, topic_name, 0, 0, 150, skip_corrupt=True)
        offsets = [offset for batch in reader for offset in batch["offset"].to_pylist()]
    assert offsets == [*range(50), *range(100, 150)]


@pytest.mark.parametrize("damage", [1 << 40, -50])
def test_a_batch_that_lies_about_its_offset_is_an_error_or_left_out(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch, damage: int
) -> None:
    fill(broker, topic_name, batches=4)
    find = range_reader.RangeReader._partition

    def lie(self: Any, answer: Any, offset: int) -> Any:
        found = find(self, answer, offset)
        records = bytearray(found.records)
        for position, _ in split_batches(records):
            base_offset = int.from_bytes(records[position : position + 8], "big")
            if base_offset == 50:
                records[position : position + 8] = (50 + damage).to_bytes(8, "big")
        found.records = bytes(records)
        return found

    monkeypatch.setattr(range_reader.RangeReader, "_partition", lie)
    with PlainCluster(broker.bootstrap) as cluster:
        with pytest.raises(CorruptMessageError, match=f"{topic_name}-0: offset 50 cannot be read.*seek to 100"):
            read(cluster, topic_name, 0, 200)
        rows = read(cluster, topic_name, 0, 200, skip_corrupt=True)
        assert [offset for offset, _ in rows] == [*range(50), *range(100, 200)]


def test_past_a_batch_that_lies_alone_in_its_answers_the_way_on_takes_few_fetches(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, topic_name, batches=3, rows=1000)
    find, asked = range_reader.RangeReader._partition, []

    def lie(self: Any, answer: Any, offset: int) -> Any:
        asked.append(offset)
        found = find(self, answer, offset)
        for position, size in split_batches(found.records):
            records = bytearray(found.records[position : position + size])
            base_offset = int.from_bytes(records[:8], "big")
            if base_offset <= offset < base_offset + 1000:
                if base_offset == 1000:
                    records[:8] = (1 << 40).to_bytes(8, "big")
                found.records = bytes(records)
                break
        return found

    monkeypatch.setattr(range_reader.RangeReader, "_partition", lie)
    with PlainCluster(broker.bootstrap) as cluster:
        rows = read(cluster, topic_name, 0, 3000, skip_corrupt=True)
    assert [offset for offset, _ in rows] == [*range(1000), *range(2000, 3000)]
    assert len(asked) < 30


class PlayedLeader:
    """A connection to a leader whose answers are given."""

    address = "played:9092"

    def __init__(self, answers: list[FetchResponse]) -> None:
        self.answers = deque(answers)
        self.asked: list[int] = []
        """The offset of each Fetch."""
        self.limits: list[float | None] = []
        """The seconds that each answer may take."""

    def version_for(self, request_type: type, highest: int) -> int:
        return highest

    def send(self, request: Any, version: int) -> None:
        self.asked.append(request.topics[0].partitions[0].fetch_offset)

    def receive(self, timeout: float | None = None) -> FetchResponse:
        self.limits.append(timeout)
        return self.answers.popleft()

    def close(self) -> None:
        pass


def answer_with(*values: bytes) -> FetchResponse:
    batch = BatchBuilder()
    for value in values:
        batch.append(None, value, timestamp=0)
    partition = FetchResponse.PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        high_watermark=len(values),
        aborted_transactions=None,
        records=bytes(batch.build()),
    )
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])])


def read_from(leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch, **options: int) -> list[tuple[int, bytes]]:
    with PlainCluster("played:9092", options, retry_for=0.0) as cluster:
        monkeypatch.setattr(cluster, "connection_for", lambda place, replica: leader)
        return read(cluster, "t", 0, 2)


def test_answers_that_a_quota_has_emptied_are_waited_for_whatever_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    throttled = FetchResponse(throttle_time_ms=60_000, responses=[])
    leader = PlayedLeader([throttled, throttled, answer_with(b"a", b"b")])
    assert read_from(leader, monkeypatch, request_timeout_ms=30_000) == [(0, b"a"), (1, b"b")]
    assert leader.asked == [0, 0, 0]
    assert leader.limits == [30, 90, 90], "Kafka keeps the next answer for as long as it says"


def test_an_answer_that_leaves_the_partition_out_without_a_reason_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = PlayedLeader([FetchResponse(responses=[])])
    with pytest.raises(NotConnected, match=r"played:9092 says nothing of t-0 at offset 0"):
        read_from(leader, monkeypatch)

"""What the driver asks the brokers."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest

from kbroker.client.errors import NotConnected
from kbroker.client.plain_cluster import PlainCluster
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.offsets import LATEST
from kbroker.protocol.records.batch import split_batches
from kbroker.protocol.records.partitioner import partition_for_key
from kbroker.spark_connector import planning
from kbroker.spark_connector.columns import ColumnPlan
from kbroker.spark_connector.filters import Interval, Pushed
from kbroker.spark_connector.offset_ranges import OffsetRange, plan_ranges
from kbroker.spark_connector.offset_specs import OffsetSpec, parse_timestamps
from kbroker.spark_connector.read_options import ReadOptions, Selection, read_options
from tests.kbroker.client.topics import create_topic, produce_values
from tests.spark_connector.schemas import plain_schema

EVERYTHING = OffsetSpec("endingOffsets", LATEST)


def test_times_become_offsets_and_bytes_divide_the_work(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    produce_values(broker.bootstrap, topic_name, 0, [b"x" * 1000] * 10, timestamp_ms=1_000)
    produce_values(broker.bootstrap, topic_name, 1, [b"x"] * 10, timestamp_ms=2_000)
    options = read_options(
        {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic_name, "minPartitions": "10"}
    )
    with PlainCluster(broker.bootstrap) as cluster:
        bounds = planning.find_bounds(cluster, planning.find_partitions(cluster, options))
        spec = parse_timestamps("startingTimestamp", "1005", latest_when_none=True)
        starts, bounds = planning.resolve(cluster, spec, bounds, bounds)
        assert starts == {(topic_name, 0): 5, (topic_name, 1): 0}
        ranges, _ = plan_ranges(starts, {place: each.latest for place, each in bounds.items()}, bounds)
        pieces = planning.split(cluster, options, ranges, bounds)
    shares = [sum(each.partition == number for each in pieces) for number in (0, 1)]
    assert shares == [5, 5], "the five large records have a task each, the ten small ones share the rest"
    assert sum(each.end - each.start for each in pieces) == 15


@pytest.mark.parametrize(
    ("given", "found", "planned"),
    [
        ({"endingTimestamp": "5000"}, {5_000: 15}, [(0, 15)]),
        ({"startingTimestamp": "5000"}, {5_000: 15}, []),
        ({"startingTimestamp": "4000", "endingTimestamp": "9000"}, {4_000: 12, 9_000: -1}, []),
        ({"startingTimestamp": "4000", "endingTimestamp": "9000"}, {4_000: 8, 9_000: 13}, [(8, 13)]),
    ],
)
def test_records_that_come_between_the_question_for_ends_and_that_for_times_are_no_loss(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], found: dict[int, int], planned: list[tuple[int, int]]
) -> None:
    batch_reader = pytest.importorskip("kbroker.spark_connector.batch_reader")
    stream_planner = pytest.importorskip("kbroker.spark_connector.stream_planner")
    place = ("t", 0)

    class Growing(PlainCluster):
        """Tells an end before the records come that it finds by their times."""

        def partitions(self, topics: Iterable[str]) -> set[Key]:
            return {place}

        def bounds(self, partitions: Collection[Key]) -> dict[Key, tuple[int, int]]:
            return {place: (0, 10)}

        def offsets(
            self, partitions: Collection[Key], timestamp: Any, *, read_committed: bool | None = None
        ) -> dict[Key, int]:
            return {place: found[timestamp[place]]}

    for module in (batch_reader, stream_planner):
        monkeypatch.setattr(module, "new_cluster", lambda options: Growing("none:1"))
    options = {"kafka.bootstrap.servers": "none:1", "subscribe": "t", **given}
    reader = batch_reader.BatchReader(read_options(options), ColumnPlan(plain_schema(), ("value",)))
    assert [(each.start, each.end) for share in reader.partitions() for each in share.ranges] == planned
    if len(given) == 1 and "startingTimestamp" in given:
        assert stream_planner.StreamPlanner(read_options(options, streaming=True)).first() == {place: 15}


def test_filters_cut_the_ranges_by_offset_and_time(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    for partition in (0, 1):
        produce_values(broker.bootstrap, topic_name, partition, [b"x"] * 100, timestamp_ms=1_000 * (partition + 1))
    options = ReadOptions(broker.bootstrap, Selection(), EVERYTHING, EVERYTHING, max_disorder_ms=5)
    ranges = [OffsetRange(topic_name, 0, 0, 100), OffsetRange(topic_name, 1, 0, 100)]

    def cut(pushed: Pushed, options: ReadOptions = options) -> list[tuple[int, int, int]]:
        found = planning.cut_by_filters(cluster, ranges, options, pushed)
        return [(each.partition, each.start, each.end) for each in found]

    with PlainCluster(broker.bootstrap) as cluster:
        assert cut(Pushed()) == [(0, 0, 100), (1, 0, 100)]
        assert cut(Pushed(offsets=Interval(90, 94))) == [(0, 90, 95), (1, 90, 95)]
        assert cut(Pushed(timestamps_us=Interval(low=1_050_000))) == [(0, 50, 100), (1, 0, 100)]
        one_millisecond = Pushed(timestamps_us=Interval(1_050_000, 1_050_999))
        assert cut(one_millisecond) == [(0, 50, 56)]
        assert cut(one_millisecond, replace(options, max_disorder_ms=None)) == [(0, 50, 100), (1, 0, 100)]
        assert cut(Pushed(timestamps_us=Interval(low=9_000_000_000))) == []


def test_keys_spare_partitions_on_request(broker: BrokerProcess, topic_name: str) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=4)
    options = ReadOptions(broker.bootstrap, Selection(), EVERYTHING, EVERYTHING)
    with PlainCluster(broker.bootstrap) as cluster:
        places = sorted(cluster.partitions([topic_name]))
        pushed = Pushed(keys=frozenset([b"21"]))
        assert planning.needed_places(cluster, places, options, pushed) == places
        by_key = replace(options, partitioned_by_key=True)
        assert planning.needed_places(cluster, places, by_key, pushed) == [(topic_name, partition_for_key(b"21", 4))]


def test_sizes_that_no_broker_tells_now_are_waited_for_only_where_they_are_needed(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    asked: list[object] = []
    with PlainCluster(broker.bootstrap, retry_for=0.5) as cluster:
        bounds = planning.find_bounds(cluster, cluster.partitions([topic_name]))

        def fail(requests: object) -> None:
            asked.append(requests)
            raise NotConnected("the broker is away")

        monkeypatch.setattr(cluster, "_ask_leaders", fail)
        assert planning.sized(cluster, bounds, bounds) == {}
        assert len(asked) == 1
        assert planning.bytes_per_offset(cluster, bounds, bounds, is_needed=True) == {}
        assert len(asked) > 2


def test_a_corrupt_batch_among_the_newest_is_no_part_of_the_sample(own_broker: BrokerProcess, topic_name: str) -> None:
    create_topic(own_broker.bootstrap, topic_name, partitions=1)
    for values in ([b"a", b"b"], [b"c", b"d"], [b"e"]):
        produce_values(own_broker.bootstrap, topic_name, 0, values)
    [log_file] = (own_broker.directory / "data" / f"{topic_name}-0").glob("*.log")
    own_broker.stop()
    data = bytearray(log_file.read_bytes())
    position, size = split_batches(data)[1]
    data[position + size - 2] ^= 0xFF
    log_file.write_bytes(data)
    own_broker.start().wait_until_ready(30)
    options = read_options({"kafka.bootstrap.servers": own_broker.bootstrap, "subscribe": topic_name})
    assert list(planning.sample(options, "value")) == [b"a", b"b", b"e"]


def test_a_sample_is_limited_in_bytes_and_has_something_of_each_partition(
    broker: BrokerProcess, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "SAMPLE_BYTES", 20_000)
    create_topic(broker.bootstrap, topic_name, partitions=2)
    for partition, name in enumerate((b"a", b"b")):
        for _ in range(10):
            produce_values(broker.bootstrap, topic_name, partition, [name * 1_000] * 10)
    options = read_options({"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic_name})
    found = list(planning.sample(options, "value"))
    assert {value[:1] for value in found} == {b"a", b"b"}
    assert 18 <= len(found) < 80

"""What a streaming query reads next, against a real broker and without Spark."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker import Admin
from kbroker.client.errors import UnknownTopicOrPartitionError
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.messages.log_dirs import DescribeLogDirsResponse
from kbroker.spark_connector.offset_ranges import OffsetRange
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.planning import DataLossError
from kbroker.spark_connector.read_options import TriggerLimits, read_options
from tests.kbroker.client.topics import create_topic, produce_values
from tests.spark_connector.test_group_commits import committed

stream_planner = pytest.importorskip("kbroker.spark_connector.stream_planner")
ALL = TriggerLimits()


class Query:
    """Planners of one query: `again` is the query after a restart."""

    def __init__(self, broker: BrokerProcess, **options: str) -> None:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest", **options}
        self._options = read_options(given, streaming=True)
        self.made: list[Any] = []

    def again(self) -> Any:
        self.made.append(stream_planner.StreamPlanner(self._options))
        return self.made[-1]


StartQuery = Callable[..., Query]


@pytest.fixture
def start_query(broker: BrokerProcess) -> Iterator[StartQuery]:
    queries: list[Query] = []

    def start(**options: str) -> Query:
        queries.append(Query(broker, **options))
        return queries[-1]

    yield start
    for query in queries:
        for planner in query.made:
            planner.close()


def places(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in ranges]


def answer_first(monkeypatch: pytest.MonkeyPatch, planner: Any, question: str, answer: Any) -> list[Any]:
    """Have the cluster answer so once, as a leader of before would; the list is empty when it has."""
    stale, ask = [answer], getattr(planner.cluster, question)
    monkeypatch.setattr(planner.cluster, question, lambda *what: stale.pop() if stale else ask(*what))
    return stale


@pytest.mark.slow
def test_batches_follow_each_other_without_gap_or_overlap(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 30)
    produce_values(broker.bootstrap, topic_name, 1, [b"v"] * 10)
    planner = start_query(subscribe=topic_name).again()
    start = planner.first()
    assert start == {(topic_name, 0): 0, (topic_name, 1): 0}
    seen = []
    while (end := planner.next_end(start, TriggerLimits(max_offsets=20))) != start:
        seen.append(places(planner.ranges(start, end)))
        start = end
    assert seen == [[(0, 0, 15), (1, 0, 5)], [(0, 15, 30), (1, 5, 10)]]
    assert planner.newest == start
    assert planner.ranges(start, start) == []


def test_a_small_batch_waits_for_more_or_for_its_time(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 5)
    planner, limits = start_query(subscribe=topic_name).again(), TriggerLimits(min_offsets=10, max_delay_ms=60_000)
    start = planner.first()
    first = planner.next_end(start, limits, now=100.0)
    assert first == {(topic_name, 0): 5}, "the first batch is made at once"
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 5)
    assert planner.next_end(first, limits, now=159.0) == first
    assert planner.next_end(first, limits, now=161.0) == {(topic_name, 0): 10}
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    assert planner.next_end({(topic_name, 0): 10}, limits, now=162.0) == {(topic_name, 0): 20}


def test_bytes_limit_a_batch_too(broker: BrokerProcess, topic_name: str, start_query: StartQuery) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    for _ in range(10):
        produce_values(broker.bootstrap, topic_name, 0, [b"x" * 900] * 10)
    planner = start_query(subscribe=topic_name).again()
    end = planner.next_end(planner.first(), TriggerLimits(max_bytes=10_000))
    assert 8 <= end[topic_name, 0] <= 11


def test_a_limit_of_bytes_that_cannot_be_kept_ends_the_query(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 5)
    planner = start_query(subscribe=topic_name).again()
    start = planner.first()
    monkeypatch.setattr(
        planner.cluster, "sizes", lambda *_, **__: {}
    )  # as older brokers answer those without the right
    with pytest.raises(OptionError, match=f"do not tell the sizes of {topic_name}-0"):
        planner.next_end(start, TriggerLimits(max_bytes=10_000))
    assert planner.next_end(start, ALL) == {(topic_name, 0): 5}, "without that limit no sizes are needed"


def test_a_limit_of_bytes_outlasts_a_failure_that_passes(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 5)
    planner = start_query(subscribe=topic_name).again()
    ask, passing = planner.cluster._ask_leaders, [True]

    def as_a_leader_that_is_none_any_more(requests: Any) -> Any:
        answers = ask(requests)
        if isinstance(answers[0], DescribeLogDirsResponse) and passing:
            passing.clear()
            answers[0].results[0].topics = []
        return answers

    monkeypatch.setattr(planner.cluster, "_ask_leaders", as_a_leader_that_is_none_any_more)
    assert planner.next_end(planner.first(), TriggerLimits(max_bytes=10_000)) == {(topic_name, 0): 5}
    assert not passing


def test_an_assigned_partition_that_is_gone_is_an_error_or_left_out(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 3)
    assigned = json.dumps({topic_name: [0, 7]})
    seen = {(topic_name, 0): 1, (topic_name, 7): 4}
    with pytest.raises(OptionError, match=f"not there: {topic_name}-7"):
        start_query(assign=assigned).again().next_end(seen, ALL)
    loose = start_query(assign=assigned, failOnDataLoss="false").again()
    end = loose.next_end(seen, ALL)
    assert end == {(topic_name, 0): 3}
    assert places(loose.ranges(seen, end)) == [(0, 1, 3)]
    named = json.dumps({topic_name: {"0": 1, "7": 4}})
    loose = start_query(assign=assigned, startingOffsets=named, failOnDataLoss="false").again()
    assert loose.first() == {(topic_name, 0): 1}, "no checkpoint, and offsets that it had to name while it was there"


def test_available_now_stops_at_what_there_was(broker: BrokerProcess, topic_name: str, start_query: StartQuery) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 5)
    planner = start_query(subscribe=topic_name).again()
    planner.stop_at_newest()
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 5)
    end = planner.next_end(planner.first(), TriggerLimits(min_offsets=100))
    assert end == {(topic_name, 0): 5}
    assert planner.next_end(end, ALL) == end


def test_available_now_leaves_a_topic_made_again_meanwhile_to_the_next_query_and_all_of_it(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"old"] * 20)
    query, limits = start_query(subscribe=topic_name, failOnDataLoss="false"), TriggerLimits(max_offsets=10)
    planner = query.again()
    planner.stop_at_newest()
    end = planner.next_end(planner.first(), limits)
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([topic_name])
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"new"] * 5)

    def all_after(planner: Any, end: dict[tuple[str, int], int]) -> tuple[dict[tuple[str, int], int], list[Any]]:
        seen, start = [], None
        while start != end:
            start, end = end, planner.next_end(end, limits)
            seen += places(planner.ranges(start, end))
        return end, seen

    end, seen = all_after(planner, end)
    assert (end, seen) == ({}, [])
    produce_values(broker.bootstrap, topic_name, 0, [b"new"] * 9)
    planner = query.again()
    planner.stop_at_newest()
    assert all_after(planner, end)[1] == [(0, 0, 10), (0, 10, 14)]


def test_available_now_goes_no_further_than_what_is_still_there(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 5)
    planner = start_query(subscribe=topic_name, **{"kafka.request.timeout.ms": "500"}).again()
    start = planner.first()
    with monkeypatch.context() as before_the_log_was_cut:
        before_the_log_was_cut.setattr(planner.cluster, "offsets", lambda places, *_: dict.fromkeys(places, 9))
        planner.stop_at_newest()
    assert planner.next_end(start, ALL) == {(topic_name, 0): 5}


def test_new_partitions_and_topics_are_read_from_their_first_record(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery
) -> None:
    create_topic(broker.bootstrap, f"{topic_name}-a", partitions=1)
    planner = start_query(subscribePattern=f"{topic_name}-.*", startingOffsets="latest").again()
    start = planner.first()
    create_topic(broker.bootstrap, f"{topic_name}-b", partitions=1)
    with Admin(broker.bootstrap) as admin:
        admin.create_partitions({f"{topic_name}-a": 2})
    produce_values(broker.bootstrap, f"{topic_name}-b", 0, [b"v"] * 3)
    produce_values(broker.bootstrap, f"{topic_name}-a", 1, [b"v"] * 2)
    end = planner.next_end(start, ALL)
    assert end == {(f"{topic_name}-a", 0): 0, (f"{topic_name}-a", 1): 2, (f"{topic_name}-b", 0): 3}
    assert sum(each.end - each.start for each in planner.ranges(start, end)) == 5


def test_a_new_partition_that_does_not_begin_at_0_has_lost_records(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=2)
    for partition in (0, 1):
        produce_values(broker.bootstrap, topic_name, partition, [b"v"] * 8)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({(topic_name, 1): 5})
    start = {(topic_name, 0): 4}
    strict, loose = start_query(subscribe=topic_name), start_query(subscribe=topic_name, failOnDataLoss="false")
    end = strict.again().next_end(start, ALL)
    with pytest.raises(DataLossError, match=f"new partition {topic_name}-1 begins at offset 5 instead of 0"):
        strict.again().ranges(start, end)
    assert places(loose.again().ranges(start, end)) == [(0, 4, 8), (1, 5, 8)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_topic_made_again_is_an_error_or_read_from_its_first_record(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery, restarted: bool
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"old"] * 4)
    strict, loose = start_query(subscribe=topic_name), start_query(subscribe=topic_name, failOnDataLoss="false")
    planners = [query.again() for query in (strict, loose)]
    ends = [planner.next_end(planner.first(), ALL) for planner in planners]
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([topic_name])
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"new"] * (3 if restarted else 6))
    if restarted:  # nothing is left but the checkpoint: the end lies before what was read
        planners = [query.again() for query in (strict, loose)]
    with pytest.raises(
        DataLossError, match="ends at 3, before the offset 4" if restarted else "deleted and made again"
    ):
        planners[0].next_end(ends[0], ALL)
    dropped = planners[1].next_end(ends[1], ALL)
    assert dropped == {}
    assert planners[1].ranges(ends[1], dropped) == []
    end = planners[1].next_end(dropped, ALL)
    assert places(planners[1].ranges(dropped, end)) == [(0, 0, 3 if restarted else 6)]


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_an_end_before_what_was_read_is_no_loss_where_the_next_answer_knows_better(
    broker: BrokerProcess,
    topic_name: str,
    start_query: StartQuery,
    monkeypatch: pytest.MonkeyPatch,
    fail_on_data_loss: str,
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    planner = start_query(subscribe=topic_name, failOnDataLoss=fail_on_data_loss).again()
    seen = planner.next_end(planner.first(), ALL)
    stale = answer_first(monkeypatch, planner, "offsets", dict.fromkeys(seen, 6))
    assert planner.next_end(seen, ALL) == seen == {(topic_name, 0): 10}
    assert not stale


def test_available_now_reads_all_that_was_there_though_an_answer_is_late(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    planner = start_query(subscribe=topic_name).again()
    start = planner.first()
    planner.stop_at_newest()
    stale = answer_first(monkeypatch, planner, "offsets", dict.fromkeys(start, 0))
    assert planner.next_end(start, ALL) == {(topic_name, 0): 10}
    assert not stale


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_planned_end_that_is_not_there_yet_is_no_loss_where_the_next_answer_knows_better(
    broker: BrokerProcess,
    topic_name: str,
    start_query: StartQuery,
    monkeypatch: pytest.MonkeyPatch,
    fail_on_data_loss: str,
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 10)
    planner = start_query(subscribe=topic_name, failOnDataLoss=fail_on_data_loss).again()
    start = planner.first()
    end = planner.next_end(start, ALL)
    stale = answer_first(monkeypatch, planner, "bounds", dict.fromkeys(end, (0, 6)))
    assert places(planner.ranges(start, end)) == [(0, 0, 10)]
    assert not stale


def test_an_end_before_what_was_read_is_a_loss_when_it_stays(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 6)
    seen, given = {(topic_name, 0): 10}, {"subscribe": topic_name, "kafka.request.timeout.ms": "500"}
    strict, loose = start_query(**given).again(), start_query(**given, failOnDataLoss="false").again()
    for planner in (strict, loose):
        planner.first()  # it knows the topic by its id
    with pytest.raises(DataLossError, match=f"{topic_name}-0 ends at 6, before the offset 10 read so far"):
        strict.next_end(seen, ALL)
    assert loose.next_end(seen, ALL) == {(topic_name, 0): 6}


@pytest.mark.slow
def test_a_deleted_topic_is_an_error_or_left_out(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery
) -> None:
    for name in (topic_name, f"{topic_name}-b"):
        create_topic(broker.bootstrap, name, partitions=1)
    both = f"{topic_name},{topic_name}-b"
    strict = start_query(subscribe=both).again()
    loose = start_query(subscribe=both, failOnDataLoss="false").again()
    starts = [strict.first(), loose.first()]
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([topic_name])
    with pytest.raises(DataLossError, match="The topic was deleted"):
        strict.next_end(starts[0], ALL)
    assert loose.next_end(starts[1], ALL) == {(f"{topic_name}-b", 0): 0}
    assert loose.ranges(starts[1], {(f"{topic_name}-b", 0): 0}) == []


def test_offsets_that_aged_out_are_an_error_or_left_out(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 5)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 5)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({(topic_name, 0): 5})
    given = {"subscribe": topic_name, "startingOffsets": json.dumps({topic_name: {"0": 2}})}
    with pytest.raises(DataLossError, match=rf"{topic_name}-0: offsets \[2, 10\) were asked for, \[5, 10\) are there"):
        start_query(**given).again().first()
    start, end = {(topic_name, 0): 2}, {(topic_name, 0): 9}
    with pytest.raises(DataLossError, match=r"\[2, 9\) were asked for"):
        start_query(**given).again().ranges(start, end)
    loose = start_query(**given, failOnDataLoss="false").again()
    assert places(loose.ranges(start, end)) == [(0, 5, 9)]


def test_a_group_is_told_where_the_next_batch_begins(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    produce_values(broker.bootstrap, topic_name, 0, [b"v"] * 5)
    planner = start_query(subscribe=topic_name, commitOffsetsToGroup=topic_name).again()
    end = planner.next_end(planner.first(), ALL)
    assert planner.next_end(end, ALL) == end, "where the next batch begins, the last one is finished"
    planner.close()
    assert committed(broker, topic_name) == {(topic_name, 0): 5}


def test_small_ranges_are_one_task_and_large_ones_a_task_each(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=3)
    for partition in range(3):
        produce_values(broker.bootstrap, topic_name, partition, [b"v" * 1_000] * 700)
    end = {(topic_name, partition): 700 for partition in range(3)}

    def tasks(start: int, **options: str) -> list[list[tuple[int, int, int]]]:
        planner = start_query(subscribe=topic_name, **options).again()
        shares = planner.shares(dict.fromkeys(end, start), end)
        assert shares == planner.shares(dict.fromkeys(end, start), end)
        return [places(list(share)) for share in shares]

    assert tasks(690) == [[(0, 690, 700), (1, 690, 700), (2, 690, 700)]]
    assert tasks(0) == [[(0, 0, 700)], [(1, 0, 700)], [(2, 0, 700)]]
    assert len(tasks(690, minPartitions="3")) == 3
    assert len(tasks(690, maxRecordsPerPartition="100")) == 3


@pytest.mark.slow
@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_goes_while_a_pattern_is_looked_up_disturbs_no_other(
    broker: BrokerProcess, topic_name: str, start_query: StartQuery, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    create_topic(broker.bootstrap, f"{topic_name}-kept", partitions=1)
    produce_values(broker.bootstrap, f"{topic_name}-kept", 0, [b"v"] * 10)
    planner = start_query(subscribePattern=f"{topic_name}-.*", failOnDataLoss=fail).again()
    end = planner.next_end(planner.first(), ALL)
    assert end == {(f"{topic_name}-kept", 0): 10}
    stale = answer_first(monkeypatch, planner, "topics", [f"{topic_name}-gone", f"{topic_name}-kept"])
    assert planner.next_end(end, ALL) == end
    assert not stale
    monkeypatch.setattr(planner.cluster, "topics", lambda: [f"{topic_name}-gone", f"{topic_name}-kept"])
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic_name}-gone"):  # it is nobody's to say that it went
        planner.next_end(end, ALL)

"""Options of reads: defaults, what goes together, what is refused."""

import pytest

from kbroker.protocol.messages.offsets import EARLIEST, LATEST
from kbroker.spark_connector.options import OptionError
from kbroker.spark_connector.read_options import ReadOptions, TriggerLimits, read_options

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "flights"}


def read(streaming: bool = False, **changed: str) -> ReadOptions:
    return read_options({**BASE, **changed}, streaming=streaming)


def test_defaults_are_those_of_sparks_own_source() -> None:
    options = read()
    assert options.bootstrap == "127.0.0.1:9092"
    assert options.selection.subscribe == ("flights",)
    assert (options.starting.default, options.ending.default) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert read(streaming=True).starting.default == LATEST
    assert options.limits == TriggerLimits(None, None, 900_000, None)


def test_a_time_goes_before_times_per_partition_and_these_before_offsets() -> None:
    per_partition = '{"flights":{"0":5}}'
    options = read(startingOffsets="earliest", startingOffsetsByTimestamp=per_partition)
    assert options.starting.by_time
    assert options.starting.by_partition == {("flights", 0): 5}
    options = read(startingOffsetsByTimestamp=per_partition, startingTimestamp="1000", endingTimestamp="2000")
    assert (options.starting.default, options.ending.default) == (1000, 2000)
    assert options.ending.latest_when_none
    assert not options.starting.latest_when_none
    assert read(startingTimestamp="1", startingOffsetsByTimestampStrategy="LATEST").starting.latest_when_none


def test_limits_groups_and_patience_are_read() -> None:
    options = read(
        streaming=True,
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="2s",
        maxBytesPerTrigger="5000",
        commitOffsetsToGroup="readers",
        minPartitions="4",
        maxRecordsPerPartition="50",
        **{"fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "100", "kafkaConsumer.pollTimeoutMs": "512"},
    )
    assert options.limits == TriggerLimits(100, 10, 2_000, 5_000)
    assert options.commit_group == "readers"
    assert (options.min_partitions, options.max_records_per_partition) == (4, 50)
    assert (options.further_patience_ms, options.poll_timeout_ms) == (500, 512)
    named = read(streaming=True, commitOffsetsToGroup="true", **{"kafka.group.id": "mine"})
    assert named.commit_group == "mine"


@pytest.mark.parametrize(
    ("streaming", "changed", "said"),
    [
        (False, {"subscribe": ""}, "exactly one of"),
        (False, {"assign": '{"a":[0]}'}, "exactly one of"),
        (False, {"startingOffsets": "latest"}, "cannot be latest"),
        (False, {"endingOffsets": "earliest"}, "cannot be earliest"),
        (False, {"startingTimestamp": "now"}, "startingTimestamp is"),
        (False, {"commitOffsetsToGroup": "g"}, "for streaming reads"),
        (False, {"schemaRegistry": "registry:8081"}, "must begin with http:// or https://"),
        (False, {"failOnDataLoss": "1"}, 'must be "true" or "false"'),
        (True, {"endingOffsets": "latest"}, "endingOffsets cannot be given"),
        (True, {"endingTimestamp": "5"}, "endingTimestamp cannot be given"),
        (True, {"commitOffsetsToGroup": "true"}, "needs kafka.group.id"),
        (True, {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "is more than maxOffsetsPerTrigger"),
        (True, {"maxOffsetPerTrigger": "5"}, 'did you mean "maxOffsetsPerTrigger"'),
    ],
)
def test_a_wrong_option_is_refused_by_name(streaming: bool, changed: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as refusal:
        read(streaming, **changed)
    assert said in str(refusal.value)


def test_patterns_and_assignments_choose_partitions_too() -> None:
    only = {"kafka.bootstrap.servers": "h:1"}
    assert read_options({**only, "assign": '{"b":[1,0],"a":[2]}'}).selection.assign == (
        ("a", 2),
        ("b", 0),
        ("b", 1),
    )
    assert read_options({**only, "subscribePattern": "fl.*"}).selection.subscribe_pattern == "fl.*"
    for wrong in (
        {"subscribePattern": "("},
        {"subscribePattern": "[a-z&&]"},
        {"assign": "flights"},
        {"assign": "{}"},
    ):
        with pytest.raises(OptionError):
            read_options({**only, **wrong})


def test_formats_and_modes_are_read_whatever_their_case() -> None:
    options = read(valueFormat="JSON", keyFormat="string", mode="failfast", valueSchema="a int", includeHeaders="true")
    assert (options.value_format, options.key_format, options.mode) == ("json", "string", "FAILFAST")
    assert options.include_headers


def test_for_a_schema_alone_what_only_some_reads_allow_is_let_through() -> None:
    given = {**BASE, "startingOffsets": "latest", "commitOffsetsToGroup": "g"}
    assert read_options(given, streaming=None).commit_group == "g"

"""The options of a read, checked once, under the names and meanings of Spark's Kafka source.

Ours alone: maxBytesPerTrigger, commitOffsetsToGroup; for filters partitionedByKey and maxTimestampDisorderMs; for typed
columns valueFormat, keyFormat, valueSchema, keySchema and mode.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.offsets import EARLIEST, LATEST
from kbroker.spark_connector.offset_specs import OffsetSpec, parse_offsets, parse_timestamps
from kbroker.spark_connector.options import GivenOptions, OptionError

log = logging.getLogger(__name__)

CHOOSERS = ("assign", "subscribe", "subscribePattern")
STARTS = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
)
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")
FILTERS = ("partitionedByKey", "maxTimestampDisorderMs")
FETCHING = ("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
GROUPS = ("groupIdPrefix", "commitOffsetsToGroup")
FORMATS = ("valueFormat", "keyFormat", "valueSchema", "keySchema", "mode", "schemaRegistry", "avroFraming")
KINDS = ("binary", "string", "json", "avro")
FRAMINGS = ("none", "registry")
MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
SPLITS = ("minPartitions", "maxRecordsPerPartition")
READ_OPTIONS = (
    *(*CHOOSERS, *STARTS, *ENDS, "failOnDataLoss", "includeHeaders"),
    *(*SPLITS, *FETCHING, *GROUPS, *LIMITS, *FILTERS, *FORMATS),
)
RETRY_INTERVAL_MS = 10
RETRIES = 3
MAX_TRIGGER_DELAY_MS = 900_000
"""Spark's defaults of fetchOffset.retryIntervalMs, fetchOffset.numRetries and maxTriggerDelay."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions are read: exactly one of the three is given."""

    assign: tuple[Key, ...] = ()
    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str = ""


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How much one micro-batch takes; None: no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = MAX_TRIGGER_DELAY_MS
    """After so long a batch is made of fewer than min_offsets too."""
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read, checked."""

    bootstrap: str
    selection: Selection
    starting: OffsetSpec
    ending: OffsetSpec
    fail_on_data_loss: bool = True
    include_headers: bool = False
    client: Mapping[str, str] = field(default_factory=dict)
    """The `kafka.*` options without their prefix and without bootstrap.servers."""
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    poll_timeout_ms: int | None = None
    """How long a task waits for records that are there."""
    further_patience_ms: int = 0
    """How much longer than the client would the driver asks for offsets again, where fetchOffset.* say so."""
    limits: TriggerLimits = TriggerLimits()
    commit_group: str = ""
    """The consumer group that gets the offsets of finished micro-batches."""
    partitioned_by_key: bool = False
    max_disorder_ms: int | None = None
    value_format: str = "binary"
    key_format: str = "binary"
    value_schema: str = ""
    """JSON: Spark's DDL of the fields, `carrier string, delay int`; empty: inferred from a sample. Avro: its schema."""
    key_schema: str = ""
    mode: str = "PERMISSIVE"
    registry: str = ""
    """URL of a schema registry."""
    avro_is_framed: bool = False
    """Whether Avro comes behind the registry's five bytes."""


def read_options(options: Mapping[str, str], *, streaming: bool | None = False) -> ReadOptions:
    """Check the options of a read; raises OptionError saying which is wrong and why.

    `streaming` None: Spark asks for the schema and does not say for which kind of read.
    """
    given = GivenOptions(options, READ_OPTIONS)
    try:
        starting = _starting(given, streaming)
        ending = _ending(given, streaming)
    except ValueError as error:
        raise error if isinstance(error, OptionError) else OptionError(str(error)) from error
    if streaming is False:
        for name in given.given(*LIMITS):
            log.warning("%s has no effect in a batch read", name)
    return ReadOptions(
        bootstrap=given.bootstrap(),
        selection=_selection(given),
        starting=starting,
        ending=ending,
        fail_on_data_loss=given.boolean("failOnDataLoss", True),
        include_headers=given.boolean("includeHeaders", False),
        client=given.client(),
        min_partitions=given.number("minPartitions", 1),
        max_records_per_partition=given.number("maxRecordsPerPartition", 1),
        poll_timeout_ms=given.number("kafkaConsumer.pollTimeoutMs", 1),
        further_patience_ms=_further_patience(given),
        limits=_limits(given),
        commit_group=_commit_group(given, streaming),
        partitioned_by_key=given.boolean("partitionedByKey", False),
        max_disorder_ms=given.number("maxTimestampDisorderMs", 0),
        value_format=given.choice("valueFormat", KINDS, "binary"),
        key_format=given.choice("keyFormat", KINDS, "binary"),
        value_schema=given.text("valueSchema"),
        key_schema=given.text("keySchema"),
        mode=given.choice("mode", MODES, "PERMISSIVE"),
        registry=given.registry("schemaRegistry"),
        avro_is_framed=is_framed(given),
    )


def is_framed(given: GivenOptions) -> bool:
    """Return whether Avro is framed: where a registry is named, unless avroFraming says otherwise."""
    return given.choice("avroFraming", FRAMINGS, "registry" if given.given("schemaRegistry") else "none") == "registry"


def _starting(given: GivenOptions, streaming: bool | None) -> OffsetSpec:
    """Take the first that is given, in Spark's order."""
    or_latest = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest"
    for name in given.given(*STARTS[:2]):
        return parse_timestamps(name, given.text(name), latest_when_none=or_latest)
    starting = parse_offsets("startingOffsets", given.text("startingOffsets", "latest" if streaming else "earliest"))
    if streaming is False and (starting.default == LATEST or LATEST in starting.by_partition.values()):
        raise OptionError("startingOffsets cannot be latest (-1) in a batch read: nothing would be read")
    return starting


def _ending(given: GivenOptions, streaming: bool | None) -> OffsetSpec:
    named = given.given(*ENDS)
    if streaming and named:
        raise OptionError(f"{named[0]} cannot be given in a streaming read: it has no end; use Trigger.AvailableNow")
    for name in given.given(*ENDS[:2]):
        return parse_timestamps(name, given.text(name), latest_when_none=True)
    ending = parse_offsets("endingOffsets", given.text("endingOffsets", "latest"))
    if ending.default == EARLIEST or EARLIEST in ending.by_partition.values():
        raise OptionError("endingOffsets cannot be earliest (-2) in a batch read: nothing would be read")
    return ending


def _limits(given: GivenOptions) -> TriggerLimits:
    most, least = given.number("maxOffsetsPerTrigger", 1), given.number("minOffsetsPerTrigger", 1)
    if most is not None and least is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})")
    delay = given.duration_ms("maxTriggerDelay")
    return TriggerLimits(
        most, least, MAX_TRIGGER_DELAY_MS if delay is None else delay, given.number("maxBytesPerTrigger", 1)
    )


def _further_patience(given: GivenOptions) -> int:
    """Return the time that Spark's retries take: each of them has all of the client's own patience behind it."""
    if not given.given("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"):
        return 0
    retries = given.number("fetchOffset.numRetries", 0)
    interval = given.number("fetchOffset.retryIntervalMs", 0)
    return (RETRIES if retries is None else retries) * (RETRY_INTERVAL_MS if interval is None else interval)


def _commit_group(given: GivenOptions, streaming: bool | None) -> str:
    """Return the group to commit to: the option's text, or kafka.group.id when that is `true`."""
    text = given.text("commitOffsetsToGroup")
    if text.lower() in ("", "false"):
        return ""
    if streaming is False:
        raise OptionError("commitOffsetsToGroup is for streaming reads: a batch read has no progress to commit")
    if text.lower() != "true":
        return text
    if not given.given("kafka.group.id"):
        raise OptionError("commitOffsetsToGroup=true needs kafka.group.id; or give the group's name: it is created")
    return given.text("kafka.group.id")


def _selection(given: GivenOptions) -> Selection:
    chosen = given.given(*CHOOSERS)
    if len(chosen) != 1:
        raise OptionError(f"exactly one of {', '.join(CHOOSERS)} must be given; given: {', '.join(chosen) or 'none'}")
    text = given.text(chosen[0])
    if chosen[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise OptionError(f"subscribe names no topic: {text!r}")
        return Selection(subscribe=topics)
    if chosen[0] == "subscribePattern":
        from kbroker.spark_connector.java_pattern import java_pattern

        try:
            java_pattern(text)
        except ValueError as error:
            raise OptionError(f"subscribePattern {text!r} is no pattern of Java's that can be had: {error}") from error
        return Selection(subscribe_pattern=text)
    return Selection(assign=_assignment(text))


def _assignment(text: str) -> tuple[Key, ...]:
    try:
        parsed = json.loads(text)
        pairs = {(str(topic), int(p)) for topic, partitions in parsed.items() for p in partitions}
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(f'assign is {text!r}: it must be JSON such as {{"topic":[0,1]}} ({error})') from error
    if not pairs:
        raise OptionError(f"assign names no partition: {text!r}")
    return tuple(sorted(pairs))

"""The options of a read, taken apart and checked once, under the names and meanings of Spark's Kafka source."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_connector.offset_ranges import EARLIEST, LATEST, OffsetSpec, TopicPartition, parse_offset_spec

CHOOSERS = ("assign", "subscribe", "subscribePattern")
SUPPORTED = (*CHOOSERS, "startingOffsets", "endingOffsets", "failOnDataLoss", "includeHeaders")
BOOTSTRAP = "kafka.bootstrap.servers"


class OptionError(ValueError):
    """An option of the data source is missing, unknown, contradictory or malformed."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions are read: exactly one of the three is given."""

    assign: tuple[TopicPartition, ...] = ()
    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str = ""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A batch read, checked."""

    bootstrap: str
    selection: Selection
    starting: OffsetSpec
    ending: OffsetSpec
    fail_on_data_loss: bool = True
    include_headers: bool = False
    client: Mapping[str, str] = field(default_factory=dict)
    """The `kafka.*` options without their prefix and without bootstrap.servers."""


def include_headers(options: Mapping[str, str]) -> bool:
    """Return whether the schema has the column `headers`; all that the schema depends on."""
    return _boolean("includeHeaders", _lower_keys(options).get("includeheaders", "false"))


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of `spark.read.format("kbroker")`; raises OptionError saying which is wrong and why."""
    given = _lower_keys(options)
    _refuse_unknown(options)
    bootstrap = given.get(BOOTSTRAP, "").strip()
    if not bootstrap:
        raise OptionError(f'the option "{BOOTSTRAP}" is missing: host:port of one or more brokers')
    try:
        starting = parse_offset_spec("startingOffsets", given.get("startingoffsets", "earliest"))
        ending = parse_offset_spec("endingOffsets", given.get("endingoffsets", "latest"))
    except ValueError as error:
        raise OptionError(str(error)) from error
    if starting.default == LATEST or LATEST in starting.by_partition.values():
        raise OptionError("startingOffsets cannot be latest (-1) in a batch read: nothing would be read")
    if ending.default == EARLIEST or EARLIEST in ending.by_partition.values():
        raise OptionError("endingOffsets cannot be earliest (-2) in a batch read: nothing would be read")
    return ReadOptions(
        bootstrap=bootstrap,
        selection=_selection(given),
        starting=starting,
        ending=ending,
        fail_on_data_loss=_boolean("failOnDataLoss", given.get("failondataloss", "true")),
        include_headers=include_headers(options),
        client={
            name.removeprefix("kafka."): value
            for name, value in given.items()
            if name.startswith("kafka.") and name != BOOTSTRAP
        },
    )


def _lower_keys(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in SUPPORTED}
    for name in options:
        if name.lower() in known or name.lower().startswith("kafka."):
            continue
        near = difflib.get_close_matches(name.lower(), [*known, BOOTSTRAP], n=1)
        hint = f'; did you mean "{known.get(near[0], near[0])}"?' if near else ""
        raise OptionError(
            f'the option "{name}" is not known to the kbroker source{hint} Known: {", ".join(SUPPORTED)}, kafka.*'
        )


def _selection(given: Mapping[str, str]) -> Selection:
    chosen = [name for name in CHOOSERS if given.get(name.lower(), "").strip()]
    if len(chosen) != 1:
        raise OptionError(f"exactly one of {', '.join(CHOOSERS)} must be given; given: {', '.join(chosen) or 'none'}")
    text = given[chosen[0].lower()]
    if chosen[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise OptionError(f"subscribe names no topic: {text!r}")
        return Selection(subscribe=topics)
    if chosen[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern {text!r} is not a regular expression: {error}") from error
        return Selection(subscribe_pattern=text)
    return Selection(assign=_assignment(text))


def _assignment(text: str) -> tuple[TopicPartition, ...]:
    try:
        parsed = json.loads(text)
        pairs = {(str(topic), int(p)) for topic, partitions in parsed.items() for p in partitions}
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(f'assign is {text!r}: it must be JSON such as {{"topic":[0,1]}} ({error})') from error
    if not pairs:
        raise OptionError(f"assign names no partition: {text!r}")
    return tuple(sorted(pairs))


def _boolean(name: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f'{name} is {text!r}: it must be "true" or "false"')
    return text.strip().lower() == "true"

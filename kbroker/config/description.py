"""What DescribeConfigs shows: each key with its value, where that comes from and where it could have come from."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kbroker.config.broker_config import BROKER_KEYS
from kbroker.config.dynamic_config import DynamicConfig, key_of
from kbroker.protocol.config_def import ConfigKey, Scope
from kbroker.segment.log_config import TOPIC_KEYS

TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT, LOGGER = 1, 2, 3, 4, 5, 6
"""Sources of a value, as DescribeConfigs numbers them."""

UNKNOWN_TYPE = 0
SIBLINGS = {
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
}
"""Broker keys that stand in for one another."""

LOG_LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
ROOT_LOGGER = "root"


@dataclass(frozen=True, slots=True)
class Synonym:
    """One of the places a value may come from."""

    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key of a resource."""

    name: str
    value: str | None
    source: int
    read_only: bool
    is_sensitive: bool
    type_code: int
    documentation: str
    synonyms: list[Synonym] = field(default_factory=list)


def describe_topic(configs: DynamicConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every key of a topic that has these overrides."""
    defaults = configs.topic_defaults()
    entries = []
    for key in TOPIC_KEYS.values():
        synonyms = _broker_synonyms(configs, key.broker_keys)
        value = key.show(defaults.get(key.field, key.default))
        if key.name in overrides:
            value = key.show(key.parse(overrides[key.name]))
            synonyms.insert(0, Synonym(key.name, value, TOPIC_CONFIG))
        source = synonyms[0].source if synonyms else DEFAULT
        entries.append(ConfigEntry(key.name, value, source, False, False, key.type, key.doc, synonyms))
    return entries


def describe_broker(configs: DynamicConfig) -> list[ConfigEntry]:
    """Return every key of this broker; unknown ones are listed, but their values are not shown: they may be secrets."""
    entries = []
    waiting = configs.waiting
    for key in BROKER_KEYS.values():
        if key.is_internal and key.name not in configs.static.properties:
            continue
        synonyms = _broker_synonyms(configs, SIBLINGS.get(key.name, (key.name,)))
        # Kafka's tools set anew what they are shown: what waits for the next start is not to be lost.
        text = waiting[key.name] if key.name in waiting else key.show(getattr(configs.broker, key.field))
        entries.append(_broker_entry(key, None if key.is_sensitive else text, synonyms))
    names = configs.broker.properties.keys() | configs.broker_overrides.keys()
    entries.extend(_other_entry(configs, name) for name in sorted(names - BROKER_KEYS.keys()))
    return entries


def _other_entry(configs: DynamicConfig, name: str) -> ConfigEntry:
    """What is set for one listener, or is unknown."""
    key = key_of(name)
    synonyms = _broker_synonyms(configs, (name,))
    source = synonyms[0].source if synonyms else DEFAULT
    if key is None or key.is_sensitive:
        hidden = [Synonym(each.name, None, each.source) for each in synonyms]
        return ConfigEntry(name, None, source, True, True, key.type if key else UNKNOWN_TYPE, "", hidden)
    value = synonyms[0].value if synonyms else configs.broker.properties[name]
    return ConfigEntry(name, value, source, True, False, key.type, key.doc, synonyms)


def describe_broker_defaults(configs: DynamicConfig) -> list[ConfigEntry]:
    """Return the dynamic defaults of all brokers: only what is set."""
    entries = []
    for name, text in sorted(configs.default_overrides.items()):
        key = BROKER_KEYS.get(name)
        if key is None:
            entries.append(ConfigEntry(name, None, DYNAMIC_DEFAULT, False, True, UNKNOWN_TYPE, ""))
            continue
        synonyms = [each for each in _broker_synonyms(configs, (name,)) if each.source == DYNAMIC_DEFAULT]
        entries.append(_broker_entry(key, None if key.is_sensitive else text, synonyms))
    return entries


def _broker_entry(key: ConfigKey, value: str | None, synonyms: list[Synonym]) -> ConfigEntry:
    source = synonyms[0].source if synonyms else DEFAULT
    read_only = key.scope is Scope.READ_ONLY
    return ConfigEntry(key.name, value, source, read_only, key.is_sensitive, key.type, key.doc, synonyms)


def _broker_synonyms(configs: DynamicConfig, names: Sequence[str]) -> list[Synonym]:
    """Return the places where broker keys of one meaning are set, the one that holds first.

    As in Kafka, nothing is said of other names before the first place that has the first of `names`: a topic whose
    retention comes from log.retention.hours shows no synonym at all.
    """
    places = (
        (configs.broker_overrides, DYNAMIC_BROKER),
        (configs.default_overrides, DYNAMIC_DEFAULT),
        (configs.static.properties, STATIC_BROKER),
    )
    found = [
        Synonym(name, None if _is_sensitive(name) else values[name], source)
        for values, source in places
        for name in names
        if name in values
    ]
    for name in names:
        key = BROKER_KEYS.get(name)
        if key is not None and key.default is not None:
            found.append(Synonym(name, None if key.is_sensitive else key.show(key.default), DEFAULT))
    return list(itertools.dropwhile(lambda synonym: synonym.name != names[0], found))


def _is_sensitive(name: str) -> bool:
    key = BROKER_KEYS.get(name)
    return key is not None and key.is_sensitive


# -- loggers ------------------------------------------------------------------------------------------------------


def describe_loggers() -> list[ConfigEntry]:
    """Return the levels of this process's loggers."""
    names = [name for name, each in logging.root.manager.loggerDict.items() if isinstance(each, logging.Logger)]
    return [_logger_entry(name) for name in (ROOT_LOGGER, *sorted(names))]


def _logger_entry(name: str) -> ConfigEntry:
    number = logging.getLogger(None if name == ROOT_LOGGER else name).getEffectiveLevel()
    level = min(LOG_LEVELS, key=lambda each: abs(LOG_LEVELS[each] - number))
    return ConfigEntry(name, level, LOGGER, False, False, UNKNOWN_TYPE, "")


def set_logger_level(name: str, level: str | None) -> None:
    """Set a logger's level by Kafka's name for it; None: back to what it inherits."""
    logger = logging.getLogger(None if name == ROOT_LOGGER else name)
    logger.setLevel(logging.NOTSET if level is None else LOG_LEVELS[level])

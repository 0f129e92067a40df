"""The keys declared in broker_keys_log.py."""

import pytest

from kbroker.config.broker_config import BROKER_KEYS
from kbroker.config.keys_log import CleanerKeys, LogKeys
from kbroker.protocol.config_def import ConfigError, config_keys

GROUPS = (LogKeys, CleanerKeys)


def test_the_keys_are_among_the_brokers_keys_under_kafkas_names() -> None:
    names = {name for group in GROUPS for name in config_keys(group)}
    assert {"log.dirs", "log.segment.bytes", "min.insync.replicas", "log.cleaner.threads"} <= names
    assert names <= BROKER_KEYS.keys()


def test_an_attribute_is_named_like_its_key() -> None:
    for group in GROUPS:
        for key in config_keys(group).values():
            assert key.field.replace("_", "") == key.name.replace(".", "").lower()


def test_a_value_out_of_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be one of"):
        BROKER_KEYS["log.cleanup.policy"].parse("delete,shred")

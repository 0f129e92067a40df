"""The keys declared in broker_keys_coordinators.py."""

import pytest

from kbroker.config.broker_config import BROKER_KEYS
from kbroker.config.keys_coordinators import GroupKeys, TransactionKeys
from kbroker.protocol.config_def import ConfigError, config_keys

GROUPS = (GroupKeys, TransactionKeys)


def test_the_keys_are_among_the_brokers_keys_under_kafkas_names() -> None:
    names = {name for group in GROUPS for name in config_keys(group)}
    assert {"group.max.size", "offsets.topic.num.partitions", "producer.id.expiration.ms"} <= names
    assert names <= BROKER_KEYS.keys()


def test_an_attribute_is_named_like_its_key() -> None:
    for group in GROUPS:
        for key in config_keys(group).values():
            assert key.field.replace("_", "") == key.name.replace(".", "").lower()


def test_a_value_out_of_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        BROKER_KEYS["offsets.topic.num.partitions"].parse("0")

"""The keys declared in broker_keys_general.py."""

import pytest

from kbroker.config.broker_config import BROKER_KEYS
from kbroker.config.keys_general import GeneralKeys, NetworkKeys, ZooKeeperKeys
from kbroker.protocol.config_def import ConfigError, config_keys

GROUPS = (GeneralKeys, NetworkKeys, ZooKeeperKeys)


def test_the_keys_are_among_the_brokers_keys_under_kafkas_names() -> None:
    names = {name for group in GROUPS for name in config_keys(group)}
    assert {"broker.id", "message.max.bytes", "listeners", "queued.max.request.bytes", "zookeeper.connect"} <= names
    assert names <= BROKER_KEYS.keys()


def test_an_attribute_is_named_like_its_key() -> None:
    for group in GROUPS:
        for key in config_keys(group).values():
            assert key.field.replace("_", "") == key.name.replace(".", "").lower()


def test_a_value_out_of_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="between 1 and 9"):
        BROKER_KEYS["compression.gzip.level"].parse("0")

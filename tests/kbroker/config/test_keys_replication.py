"""The keys declared in broker_keys_replication.py."""

import pytest

from kbroker.config.broker_config import BROKER_KEYS
from kbroker.config.keys_replication import QuotaKeys, ReplicationKeys
from kbroker.protocol.config_def import ConfigError, config_keys

GROUPS = (ReplicationKeys, QuotaKeys)


def test_the_keys_are_among_the_brokers_keys_under_kafkas_names() -> None:
    names = {name for group in GROUPS for name in config_keys(group)}
    assert {"replica.lag.time.max.ms", "inter.broker.protocol.version", "leader.replication.throttled.rate"} <= names
    assert names <= BROKER_KEYS.keys()


def test_an_attribute_is_named_like_its_key() -> None:
    for group in GROUPS:
        for key in config_keys(group).values():
            assert key.field.replace("_", "") == key.name.replace(".", "").lower()


def test_a_value_out_of_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a release"):
        BROKER_KEYS["inter.broker.protocol.version"].parse("new")

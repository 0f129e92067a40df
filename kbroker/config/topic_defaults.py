"""What topics without overrides have: the broker's keys of the same meaning, in the topics' units."""

from __future__ import annotations

from typing import Any

from kbroker.config.broker_config import BROKER_KEYS, BrokerConfig
from kbroker.segment.log_config import TOPIC_KEYS

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def topic_defaults(config: BrokerConfig) -> dict[str, Any]:
    """Return what topics without overrides have under a broker's configuration: field of LogConfig -> value."""
    values: dict[str, Any] = {}
    for key in TOPIC_KEYS.values():
        for name in key.broker_keys:
            value = getattr(config, BROKER_KEYS[name].field)
            if value is not None:
                values[key.field] = _in_milliseconds(name, value)
                break
    values["retention_ms"] = max(-1, values["retention_ms"])
    return values


def _in_milliseconds(name: str, value: object) -> object:
    """Topic keys are in milliseconds, some of the broker's are not."""
    unit = HOUR_MS if name.endswith(".hours") else MINUTE_MS if name.endswith(".minutes") else 1
    return value * unit if unit > 1 and isinstance(value, int) else value

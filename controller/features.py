"""The cluster's features: which levels each broker supports, which count, and who may change that (pure).

A broker tells its levels in its znode; /feature holds those that are finalized, which only the controller writes. A
level counts for all brokers, so it is raised only while each of them supports it. A broker that meets a level it does
not support ends: Kafka 3.9 supports none with ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kbroker.controller.znodes import BrokerRegistration
from kbroker.protocol.errors import ErrorCode, KafkaError

TRANSACTION_VERSION = "transaction.version"
SUPPORTED: Mapping[str, tuple[int, int]] = {TRANSACTION_VERSION: (0, 2)}
"""Name -> lowest and highest level. Of transactions: 1 allows tags in their log, 2 has an epoch for each (KIP-890)."""

Levels = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Update:
    """What somebody wants a feature's level to be; 0 takes it back to what is without it."""

    feature: str
    level: int
    may_lower: bool = False


def updated(levels: Levels, update: Update, brokers: Iterable[BrokerRegistration]) -> Levels:
    """Return the levels as they are after an update; raises KafkaError saying why that cannot be."""
    feature, level = update.feature, update.level
    if feature not in SUPPORTED:
        known = ", ".join(SUPPORTED)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no feature {feature!r}: there is {known}")
    lowest, highest = SUPPORTED[feature]
    level = max(level, 0)
    if not lowest <= level <= highest:
        text = f"{feature} has the levels {lowest} to {highest}, and not {level}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    present = levels.get(feature, 0)
    if level < present and not update.may_lower:
        text = f"{feature} is at {present}: {level} would be a downgrade, which has to be asked for as such"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if level > present and update.may_lower:
        text = f"{feature} is at {present}: {level} would be no downgrade"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    others = {name: each for name, each in levels.items() if name != feature}
    wanted = {**others, feature: level} if level else others
    problems = [problem for broker in brokers if (problem := incompatibility(broker, {feature: level}))]
    if level > present and problems:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "; ".join(problems))
    return wanted


def incompatibility(broker: BrokerRegistration, levels: Levels) -> str | None:
    """Return what a broker lacks of the levels that count, None when it supports all of them."""
    lacking = [
        f"{feature}={level}" for feature, level in levels.items() if level and level > broker.features.get(feature, 0)
    ]
    return f"broker {broker.broker_id} does not support {', '.join(lacking)}" if lacking else None


def unsupported(levels: Levels) -> list[str]:
    """Return those of the levels that count which this broker does not support."""
    return [f"{name}={level}" for name, level in levels.items() if level > SUPPORTED.get(name, (0, 0))[1]]

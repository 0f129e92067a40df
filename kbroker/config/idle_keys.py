"""Keys that are set while a broker runs, and on which nothing depends: said in its log, once for each setting."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from kbroker.config.broker_config import keys_without_effect
from kbroker.controller.wording import few
from kbroker.segment.log_config import TOPIC_KEYS

log = logging.getLogger(__name__)

IDLE_TOPIC_KEYS = frozenset(key.name for key in TOPIC_KEYS.values() if not key.has_effect)


def name_idle(whose: str, before: Iterable[str], after: Iterable[str]) -> None:
    """Name those of a broker's keys (or of all brokers' defaults) that were not set before."""
    idle = keys_without_effect(set(after).difference(before))
    if idle:
        _name(idle, whose)


def name_idle_of_topics(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> None:
    """Name those of topics' keys that were not set before: thousands of topics may have the same ones."""
    idle: dict[str, list[str]] = {}
    for topic, config in after.items():
        for name in IDLE_TOPIC_KEYS.intersection(config).difference(before.get(topic, ())):
            idle.setdefault(name, []).append(topic)
    for name in sorted(idle):
        _name([name], few(sorted(idle[name])))


def _name(idle: list[str], whose: str) -> None:
    log.warning("%s: set for %s, but without effect here", ", ".join(idle), whose)

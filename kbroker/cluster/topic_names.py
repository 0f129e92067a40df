"""Kafka's rules for topic names (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 249
"""A partition's folder is `<topic>-<number>`, and `.…-delete` when it is being removed: 255 characters hold it all."""

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """Say in one line why this cannot be a topic's name; None when it can."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > LONGEST:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {LONGEST}"
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def colliding(name: str, topics: Iterable[str]) -> list[str]:
    """Return the topics whose names differ from this one only by `.` and `_`: their metrics would be mixed up."""
    if "." not in name and "_" not in name:
        return []
    folded = name.replace(".", "_")
    return sorted(topic for topic in topics if topic != name and topic.replace(".", "_") == folded)

"""Which release of Kafka a broker is like, by the APIs that it serves: the protocol has no word for it. Pure.

Each release is known by an API, or a version of one, that came with it (facts: the KIPs, Kafka's message definitions).
A broker in ZooKeeper mode does not serve all of what KRaft's do, so marks are such as both have.
"""

from __future__ import annotations

from collections.abc import Mapping

PRODUCE, FETCH, JOIN_GROUP, LIST_GROUPS, INIT_PRODUCER_ID, ADD_PARTITIONS, DESCRIBE_LOG_DIRS = 0, 1, 11, 16, 22, 24, 35

MARKS = (
    ("4.1", PRODUCE, 13),
    ("4.0", PRODUCE, 12),
    ("3.9", FETCH, 17),
    ("3.8", LIST_GROUPS, 5),
    ("3.7", FETCH, 16),
    ("3.6", ADD_PARTITIONS, 4),
    ("3.5", FETCH, 15),
    ("3.3", DESCRIBE_LOG_DIRS, 4),
    ("3.2", JOIN_GROUP, 8),
    ("3.1", FETCH, 13),
    ("2.8", 60, 0),
    ("2.7", INIT_PRODUCER_ID, 4),
    ("2.6", 48, 0),
    ("2.5", INIT_PRODUCER_ID, 3),
    ("2.4", 45, 0),
    ("2.3", 44, 0),
    ("2.2", 43, 0),
    ("2.1", PRODUCE, 7),
    ("2.0", PRODUCE, 6),
    ("1.1", 42, 0),
    ("1.0", 36, 0),
    ("0.11", 22, 0),
)
"""(release, API key, version), the newest first; 3.0 and 3.4 have no mark of their own."""


def release_like(versions: Mapping[int, tuple[int, int]]) -> str:
    """Return the newest release whose mark a broker bears, by API key -> (lowest, highest version); "" for none."""
    for release, key, version in MARKS:
        if key in versions and versions[key][1] >= version:
            return release
    return ""

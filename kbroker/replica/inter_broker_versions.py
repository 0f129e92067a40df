"""Which versions a follower's requests have: brokers do not ask each other, inter.broker.protocol.version says it."""

from __future__ import annotations

import re
from dataclasses import dataclass

LAST = 1 << 15
"""A release without -IVn stands for its last protocol."""

_FETCH = (((3, 9, 0), 17), ((3, 7, 4), 16), ((3, 5, 1), 15), ((3, 5, 0), 14))
_LIST_OFFSETS = (((3, 9, 0), 9), ((3, 5, 0), 8))
_OLDEST_FETCH = 13
_OLDEST_LIST_OFFSETS = 7
"""Those of 3.4, the oldest protocol that brokers of this kind speak among each other."""


@dataclass(frozen=True, slots=True)
class FollowerVersions:
    """API versions of what followers send."""

    fetch: int
    list_offsets: int


def follower_versions(inter_broker_protocol: str) -> FollowerVersions:
    """Return the versions for a value of inter.broker.protocol.version, such as 3.9 or 3.5-IV1."""
    found = re.match(r"(\d+)\.(\d+)[.\d]*(?:-IV(\d+))?$", inter_broker_protocol)
    assert found is not None, inter_broker_protocol
    major, minor, patch = found.groups()
    protocol = (int(major), int(minor), LAST if patch is None else int(patch))
    return FollowerVersions(
        next((version for since, version in _FETCH if protocol >= since), _OLDEST_FETCH),
        next((version for since, version in _LIST_OFFSETS if protocol >= since), _OLDEST_LIST_OFFSETS),
    )

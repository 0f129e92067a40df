from __future__ import annotations

import pytest

from kbroker.replica.inter_broker_versions import FollowerVersions, follower_versions


@pytest.mark.parametrize(
    ("protocol", "fetch", "list_offsets"),
    [
        ("3.4", 13, 7),
        ("3.4-IV0", 13, 7),
        ("3.5-IV0", 14, 8),
        ("3.5-IV1", 15, 8),
        ("3.6.2", 15, 8),
        ("3.7-IV3", 15, 8),
        ("3.7-IV4", 16, 8),
        ("3.7", 16, 8),
        ("3.8", 16, 8),
        ("3.9-IV0", 17, 9),
        ("3.9", 17, 9),
    ],
)
def test_versions_follow_the_protocol_between_brokers(protocol: str, fetch: int, list_offsets: int) -> None:
    assert follower_versions(protocol) == FollowerVersions(fetch, list_offsets)

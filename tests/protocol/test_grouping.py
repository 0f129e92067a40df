from __future__ import annotations

from kbroker.protocol.grouping import by_topic


def test_partitions_are_grouped_by_topic() -> None:
    assert by_topic([("a", 0), ("b", 1), ("a", 2)]) == {"a": [0, 2], "b": [1]}

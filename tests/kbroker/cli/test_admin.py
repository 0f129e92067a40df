"""Rows about partitions; the rest is tested through the commands on a real broker."""

import pytest

from kbroker.cli.admin import partition_state
from kbroker.client.types import PartitionDescription


@pytest.mark.parametrize(
    ("leader", "isr", "state"),
    [(1, (1, 2, 3), "ok"), (1, (1, 2), "under-replicated"), (None, (3,), "offline")],
)
def test_a_partitions_state_is_a_word(leader: int | None, isr: tuple[int, ...], state: str) -> None:
    partition = PartitionDescription(0, leader, 5, replicas=(1, 2, 3), isr=isr, offline_replicas=())
    assert partition_state(partition) == state

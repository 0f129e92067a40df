"""Where a group was and where it is now, as rows: of `group reset` and `group clone`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.client.types import OffsetAndMetadata, TopicPartition

MOVE_COLUMNS = ("group", "topic", "partition", "before", "after")


def moves(
    group: str, before: "Mapping[TopicPartition, OffsetAndMetadata]", after: "Mapping[TopicPartition, int]"
) -> list[dict[str, Any]]:
    """One row for each partition of `after`; before is None where nothing had been committed."""
    return [
        {
            "group": group,
            "topic": key.topic,
            "partition": key.partition,
            "before": before[key].offset if key in before else None,
            "after": offset,
        }
        for key, offset in after.items()
    ]

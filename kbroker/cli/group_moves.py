"""What `group reset` and `group clone` share: where a group was and where it is now, and whether it may be moved."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.client.admin import Admin
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


async def refuse_active(admin: "Admin", group: str) -> None:
    """Raise what moving the group would raise, for who only asks what would change."""
    from kbroker.client.errors import error_for
    from kbroker.protocol.errors import ErrorCode

    if (await admin.describe_groups([group]))[group].members:
        raise error_for(
            ErrorCode.NON_EMPTY_GROUP, f"group {group} has members: stop them before its offsets are changed"
        )

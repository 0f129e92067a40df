"""`kbroker topic clone` and `kbroker group clone`: another one like it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format

if TYPE_CHECKING:
    from kbroker.client.admin import Admin

SET_ON_THE_TOPIC = "DYNAMIC_TOPIC_CONFIG"
OF_A_MOVE = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""They name partitions and brokers: another topic's are others."""


def clone_topic(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    copy: Annotated[str, typer.Argument(metavar="NEW", help="Name of the new one.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Make a topic with the partitions, the number of replicas and the settings of another; without its records.

    \b
    kbroker topic clone flights flights-test
    """
    from kbroker.cli.admin import with_admin

    async def work(admin: "Admin") -> None:
        from kbroker.client.types import ResourceType

        described = (await admin.describe_topics([topic]))[topic]
        entries = (await admin.describe_configs(ResourceType.TOPIC, [topic]))[topic]
        settings = {
            name: entry.value
            for name, entry in entries.items()
            if entry.source == SET_ON_THE_TOPIC and entry.value is not None and name not in OF_A_MOVE
        }
        replicas = max(len(partition.replicas) for partition in described.partitions)
        await admin.create_topic(copy, len(described.partitions), replicas, settings)

    with_admin(bootstrap, work)


def clone_group(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")],
    copy: Annotated[str, typer.Argument(metavar="NEW", help="Name of the other; its members are stopped.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be committed.")] = False,
    overwrite: Annotated[bool, typer.Option("--yes", "-y", help="Also where NEW has committed other offsets.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Let another group go on where this one is: all its committed offsets.

    \b
    kbroker group clone billing billing-test
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.errors import CommandFailed
    from kbroker.cli.group_moves import MOVE_COLUMNS, moves, refuse_active
    from kbroker.cli.output import print_rows

    async def work(admin: "Admin") -> list[dict[str, Any]]:
        committed = {key: each for key, each in (await admin.list_group_offsets(group)).items() if each.offset >= 0}
        if not committed:
            raise CommandFailed(f"group {group} has committed nothing")
        if dry_run:
            await refuse_active(admin, copy)
        before = await admin.list_group_offsets(copy)
        if not (dry_run or overwrite) and any(key in before and before[key] != each for key, each in committed.items()):
            raise CommandFailed(f"group {copy} has committed other offsets (see --dry-run): --yes overwrites them")
        if not dry_run:
            await admin.alter_group_offsets(copy, committed)
        return moves(copy, before, {key: committed[key].offset for key in sorted(committed)})

    print_rows(with_admin(bootstrap, work), MOVE_COLUMNS, output_format)

"""`kbroker group`: list, describe, reset and delete groups; their lag and history are in modules of their own."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kbroker.cli.clone import clone_group
from kbroker.cli.group_history import history
from kbroker.cli.group_lag import lag
from kbroker.cli.group_moves import MOVE_COLUMNS, moves, refuse_active
from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format

if TYPE_CHECKING:
    from kbroker.cli.positions import StartPosition
    from kbroker.client.admin import Admin
    from kbroker.client.types import GroupDescription, TopicPartition

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command()(lag)
app.command()(history)
app.command("clone")(clone_group)

OFFSET_COLUMNS = ("group", "topic", "partition", "committed", "end_offset", "lag", "member", "client", "host")
MEMBER_COLUMNS = ("group", "member", "instance", "client", "host", "partitions", "topics")

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,…]", help="Default: all with offsets; may be repeated."),
]


@app.command("list")
def list_groups(
    state: Annotated[list[str] | None, typer.Option("--state", help="Only in this state; may be repeated.")] = None,
    kind: Annotated[
        Literal["classic", "consumer"] | None, typer.Option("--type", help="Only of this protocol.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """List the groups.

    \b
    kbroker group list --state Empty
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_rows

    found = with_admin(bootstrap, lambda admin: admin.list_groups(states=state or (), types=(kind,) if kind else ()))
    rows = [
        {"group": group.group_id, "state": group.state, "type": group.type, "protocol": group.protocol_type}
        for group in found.values()
    ]
    print_rows(rows, ("group", "state", "type", "protocol"), output_format, empty="no groups")


@app.command()
def describe(
    groups: Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Default: all.")] = None,
    members: Annotated[bool, typer.Option("--members", help="Who is in it, instead of how far it is.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Show how far a group is in each partition and who reads it, or its members.

    \b
    kbroker group describe billing
    kbroker group describe billing --members
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import is_table, print_rows, say

    described, offsets = with_admin(bootstrap, lambda admin: _describe(admin, groups or None, not members))
    if is_table(output_format):
        for group in described.values():
            say(_headline(group))
            if group.last_rebalance:
                say(f"last rebalance: {group.last_rebalance}")
    rows = [row for group in described.values() for row in _member_rows(group)] if members else offsets
    print_rows(rows, MEMBER_COLUMNS if members else OFFSET_COLUMNS, output_format)


def _headline(group: "GroupDescription") -> str:
    epoch = "" if group.epoch is None else f", epoch {group.epoch}"
    assignor = f", assignor {group.assignor}" if group.assignor else ""
    count = len(group.members)
    return (
        f"group {group.group_id}: {group.state}, {group.type}{assignor}{epoch}, "
        f"{count} member{'' if count == 1 else 's'}, coordinator is broker {group.coordinator}"
    )


async def _describe(
    admin: "Admin", names: list[str] | None, with_offsets: bool
) -> "tuple[dict[str, GroupDescription], list[dict[str, Any]]]":
    from kbroker.cli.errors import CommandFailed

    described = await admin.describe_groups(names if names is not None else await admin.list_groups())
    rows = []
    for name, group in described.items():
        offsets = await _offset_rows(admin, group) if with_offsets or group.state == "Dead" else []
        if group.state == "Dead" and not offsets:
            raise CommandFailed(f"there is no group {name}")
        rows += offsets
    return described, rows


async def _offset_rows(admin: "Admin", group: "GroupDescription") -> list[dict[str, Any]]:
    """One row for each partition that the group has committed or reads."""
    committed = await admin.list_group_offsets(group.group_id)
    owners = {key: member for member in group.members for key in member.assignment}
    existing = await _existing(admin, {*committed, *owners})
    ends = await admin.list_offsets(sorted(existing)) if existing else {}
    rows = []
    for key in sorted({*committed, *owners}):
        offset = committed[key].offset if key in committed else None
        end = ends[key].offset if key in ends else None
        member = owners.get(key)
        rows.append(
            {
                "group": group.group_id,
                "topic": key.topic,
                "partition": key.partition,
                "committed": offset,
                "end_offset": end,
                "lag": None if offset is None or end is None else max(0, end - offset),
                "member": member and member.member_id,
                "client": member and member.client_id,
                "host": member and member.host,
            }
        )
    return rows


async def _existing(admin: "Admin", partitions: "set[TopicPartition]") -> "set[TopicPartition]":
    """Leave out what was deleted since it was committed, and what nobody leads."""
    from kbroker.client.types import TopicPartition

    topics = await admin.cluster.refresh({key.topic for key in partitions})
    led = {
        TopicPartition(name, each.partition)
        for name, topic in topics.items()
        for each in topic.partitions.values()
        if each.leader >= 0
    }
    return partitions & led


def _member_rows(group: "GroupDescription") -> list[dict[str, Any]]:
    return [
        {
            "group": group.group_id,
            "member": member.member_id,
            "instance": member.group_instance_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": len(member.assignment),
            "topics": sorted({key.topic for key in member.assignment} or member.topics),
        }
        for member in group.members
    ]


@app.command()
def reset(
    group: Group,
    to: Annotated[
        str, typer.Option("--to", metavar="start|end|N|-N|@TIME", help="Where to go on; -N: N before the end.")
    ],
    topic: Topics = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Move a group whose members are stopped to other offsets.

    \b
    kbroker group reset billing --to @-1h --dry-run
    kbroker group reset billing --to start --topic flights:0,1
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_rows
    from kbroker.cli.positions import parse_position

    try:
        position = parse_position(to)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--to") from None
    rows = with_admin(bootstrap, lambda admin: _reset(admin, group, position, topic, dry_run))
    print_rows(rows, MOVE_COLUMNS, output_format, empty="nothing to reset")


async def _reset(
    admin: "Admin", group: str, position: "StartPosition", topics: list[str] | None, dry_run: bool
) -> list[dict[str, Any]]:
    from kbroker.cli.admin import partitions_of
    from kbroker.cli.positions import start_offset
    from kbroker.client.types import EARLIEST, LATEST

    if dry_run:
        await refuse_active(admin, group)
    before = await admin.list_group_offsets(group)
    chosen = sorted(before) if topics is None else await partitions_of(admin, topics)
    first = await admin.list_offsets(dict.fromkeys(chosen, EARLIEST)) if chosen else {}
    last = await admin.list_offsets(dict.fromkeys(chosen, LATEST)) if chosen else {}
    times = {}
    if position.kind == "timestamp" and chosen:
        times = await admin.list_offsets(dict.fromkeys(chosen, position.value))
    after = {}
    for key in chosen:
        found = times[key].offset if key in times else -1
        after[key] = start_offset(position, first[key].offset, last[key].offset, found if found >= 0 else None)
    if not dry_run:
        await admin.alter_group_offsets(group, after)
    return moves(group, before, after)


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Names of the groups.")],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,…]", help="Only its committed offsets of these."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete groups without members, or what they have committed of some topics.

    \b
    kbroker group delete billing-test
    """
    from kbroker.cli.admin import with_admin

    async def work(admin: "Admin") -> None:
        from kbroker.cli.admin import partitions_of

        if topic is None:
            await admin.delete_groups(groups)
            return
        chosen = await partitions_of(admin, topic)
        for group in groups:
            await admin.delete_group_offsets(group, chosen)

    with_admin(bootstrap, work)
    what = "deleted" if topic is None else f"deleted the offsets in {', '.join(topic)} of"
    typer.echo(f"{what} {', '.join(groups)}", err=True)

"""`kbroker topic delete-records` and `kbroker topic empty`: records go, the topic and its settings stay."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.errors import CommandFailed
from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format

if TYPE_CHECKING:
    from kbroker.cli.positions import StartPosition
    from kbroker.client.admin import Admin
    from kbroker.client.types import TopicPartition

COLUMNS = ("topic", "partition", "before", "after", "deleted")
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")]
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC[:PARTITION,…]...", help="Topics, or some partitions.")]


def delete_records(
    topics: Topics,
    before: Annotated[
        str, typer.Option("--before", metavar="end|N|-N|@TIME", help="Delete what is older; -N keeps the last N.")
    ],
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Delete the records of a topic, or of some of its partitions, up to an offset or a time.

    \b
    kbroker topic delete-records orders --before @-7d --dry-run
    kbroker topic delete-records orders:0,1 --before 1200
    """
    from kbroker.cli.positions import parse_position

    try:
        position = parse_position(before)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--before") from None
    _run(topics, position, dry_run, bootstrap, output_format)


def empty(
    topics: Topics, dry_run: DryRun = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output_format: Format = "table"
) -> None:
    """Delete all records of a topic, or of some of its partitions; its settings and offsets go on.

    \b
    kbroker topic empty orders --dry-run
    """
    from kbroker.cli.positions import StartPosition

    _run(topics, StartPosition("end"), dry_run, bootstrap, output_format)


def _run(topics: list[str], position: "StartPosition", dry_run: bool, bootstrap: str, output_format: Any) -> None:
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_rows

    rows = with_admin(bootstrap, lambda admin: _delete(admin, topics, position, dry_run))
    print_rows(rows, COLUMNS, output_format, empty="nothing to delete")


async def _delete(admin: "Admin", topics: list[str], position: "StartPosition", dry_run: bool) -> list[dict[str, Any]]:
    from kbroker.cli.admin import partitions_of
    from kbroker.cli.positions import start_offset
    from kbroker.client.types import EARLIEST, LATEST

    chosen = await partitions_of(admin, topics)
    first = await admin.list_offsets(dict.fromkeys(chosen, EARLIEST)) if chosen else {}
    last = await admin.list_offsets(dict.fromkeys(chosen, LATEST)) if chosen else {}
    times = {}
    if position.kind == "timestamp" and chosen:
        times = await admin.list_offsets(dict.fromkeys(chosen, position.value))
    _refuse_beyond(position, {key: last[key].offset for key in chosen})
    wanted = {}
    for key in chosen:
        found = times[key].offset if key in times else -1
        offset = start_offset(position, first[key].offset, last[key].offset, found if found >= 0 else None)
        if offset > first[key].offset:
            wanted[key] = offset
    after = dict(wanted) if dry_run or not wanted else await admin.delete_records(wanted)
    return [
        {
            "topic": key.topic,
            "partition": key.partition,
            "before": first[key].offset,
            "after": after[key],
            "deleted": after[key] - first[key].offset,
        }
        for key in sorted(wanted)
    ]


def _refuse_beyond(position: "StartPosition", ends: "Mapping[TopicPartition, int]") -> None:
    """Raise where an offset lies above the end: a reader would go on at the end, but here it would take everything."""
    if position.kind != "offset":
        return
    short = [f"{key} ends at {end}" for key, end in sorted(ends.items()) if end < position.value]
    if short:
        raise CommandFailed(
            f"nothing is deleted: there is no offset {position.value} to delete up to, {', '.join(short)}"
            " (TOPIC:0,1 names the partitions that are meant, kbroker topic empty deletes all records)"
        )

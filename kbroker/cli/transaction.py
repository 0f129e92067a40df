"""`kbroker transaction`: list, describe and end transactions, those that nobody will end too."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.errors import CommandFailed
from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format

if TYPE_CHECKING:
    from kbroker.client.admin import Admin
    from kbroker.client.types import HangingTransaction

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

LIST_COLUMNS = ("transactional_id", "coordinator", "producer_id", "state")
DESCRIBE_COLUMNS = (
    "transactional_id",
    "coordinator",
    "producer_id",
    "producer_epoch",
    "state",
    "timeout_ms",
    "open_for_s",
    "partitions",
)
HANGING_COLUMNS = (
    "topic",
    "partition",
    "start_offset",
    "producer_id",
    "producer_epoch",
    "silent_for_s",
    "transactional_id",
)

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,…]", help="Default: all topics; may be repeated."),
]


@app.command("list")
def list_transactions(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only in this state (Ongoing, Empty, …); may be repeated.")
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", help="Only of this producer; may be repeated.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """List the transactional ids and what their transactions do.

    \b
    kbroker transaction list
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_rows

    found = with_admin(
        bootstrap, lambda admin: admin.list_transactions(states=state or (), producer_ids=producer_id or ())
    )
    rows = [{name: getattr(item, name) for name in LIST_COLUMNS} for item in found.values()]
    print_rows(rows, LIST_COLUMNS, output_format, empty="no transactions")


@app.command()
def describe(
    transactional_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Transactional ids.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Show whether a transaction is open, since when, and in which partitions.

    \b
    kbroker transaction describe loader-1
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_rows

    found = with_admin(bootstrap, lambda admin: admin.describe_transactions(transactional_ids))
    rows = [
        {
            "transactional_id": item.transactional_id,
            "coordinator": item.coordinator,
            "producer_id": item.producer_id,
            "producer_epoch": item.producer_epoch,
            "state": item.state,
            "timeout_ms": item.timeout_ms,
            "open_for_s": _seconds_since(item.started_ms),
            "partitions": [str(key) for key in item.partitions],
        }
        for item in found.values()
    ]
    print_rows(rows, DESCRIBE_COLUMNS, output_format)


@app.command("find-hanging")
def find_hanging(
    topic: Topics = None,
    broker: Annotated[
        int | None, typer.Option("--broker", help="Only replicas of this broker, as it has them.")
    ] = None,
    silent_minutes: Annotated[
        float,
        typer.Option(min=0, help="Only what has written nothing for so long: no live transaction may take longer."),
    ] = 15.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Find transactions that are open in a partition and known to no coordinator: they hold up readers for ever.

    \b
    kbroker transaction find-hanging --topic flights
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_rows

    unseen: list[str] = []

    async def work(admin: "Admin") -> "list[HangingTransaction]":
        from kbroker.cli.admin import partitions_of

        chosen = None if topic is None else await partitions_of(admin, topic)
        if chosen is None:
            unseen.extend(await _without_leader(admin, broker))
        return await admin.find_hanging_transactions(chosen, broker=broker, longest_ms=round(60_000 * silent_minutes))

    rows = [_hanging_row(item) for item in with_admin(bootstrap, work)]
    print_rows(rows, HANGING_COLUMNS, output_format, empty="" if unseen else "no hanging transactions")
    if unseen:
        raise CommandFailed(f"without a leader, so not looked at: {', '.join(unseen)}")


async def _without_leader(admin: "Admin", broker: int | None) -> list[str]:
    """Name the partitions (of a broker) that nobody leads: they are left out where none is named."""
    return [
        f"{name}-{each.partition}"
        for name, topic in (await admin.describe_topics()).items()
        for each in topic.partitions
        if each.leader is None and (broker is None or broker in each.replicas)
    ]


def _hanging_row(item: "HangingTransaction") -> dict[str, Any]:
    return {
        "topic": item.partition.topic,
        "partition": item.partition.partition,
        "start_offset": item.producer.transaction_start_offset,
        "producer_id": item.producer.producer_id,
        "producer_epoch": item.producer.producer_epoch,
        "silent_for_s": _seconds_since(item.producer.last_timestamp),
        "transactional_id": item.transactional_id or None,
    }


def _seconds_since(timestamp_ms: int | None) -> float | None:
    import time

    return None if timestamp_ms is None or timestamp_ms < 0 else round(time.time() - timestamp_ms / 1000, 1)


@app.command()
def abort(
    transactional_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Transactional ids; their producers are shut out.")
    ] = None,
    hanging: Annotated[
        str | None, typer.Option("--hanging", metavar="TOPIC:PARTITION", help="A hanging transaction instead.")
    ] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", help="Where the hanging one begins, as find-hanging says.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Abort the open transactions of transactional ids, or a hanging one by its partition and first offset.

    \b
    kbroker transaction abort etl-1
    kbroker transaction abort --hanging flights:0 --start-offset 4711
    """
    from kbroker.cli.admin import with_admin

    if bool(transactional_ids) == (hanging is not None):
        raise typer.BadParameter("either transactional ids or --hanging", param_hint="ID")
    if (hanging is None) != (start_offset is None):
        raise typer.BadParameter("--hanging and --start-offset belong together", param_hint="--start-offset")

    async def work(admin: "Admin") -> None:
        for name in transactional_ids or ():
            await admin.abort_transaction(name)
        if hanging is not None:
            await _abort_hanging(admin, hanging, start_offset)

    with_admin(bootstrap, work)


async def _abort_hanging(admin: "Admin", place: str, start_offset: int | None) -> None:
    from kbroker.cli.admin import partitions_of

    chosen = await partitions_of(admin, [place])
    if len(chosen) != 1:
        raise typer.BadParameter(f"{place!r} is not TOPIC:PARTITION", param_hint="--hanging")
    found = await admin.find_hanging_transactions(chosen, longest_ms=0)
    wanted = [item for item in found if item.producer.transaction_start_offset == start_offset]
    if not wanted:
        text = f"no hanging transaction begins at offset {start_offset} of {chosen[0]}"
        raise CommandFailed(f"{text}: one that its coordinator knows is aborted by its transactional id")
    await admin.abort_hanging(wanted[0])

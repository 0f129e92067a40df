"""`kbroker cluster`: the brokers and what they hold; elections; moves of replicas are in a module of their own."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.cluster_scrub import scrub
from kbroker.cli.cluster_top import top
from kbroker.cli.errors import CommandFailed
from kbroker.cli.features import app as features
from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format
from kbroker.cli.reassign import reassign

if TYPE_CHECKING:
    from kbroker.client.admin import Admin
    from kbroker.client.types import ClusterDescription, TopicDescription, TopicPartition

ELECTIONS_PER_REQUEST = 500

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command()(reassign)
app.command()(scrub)
app.command()(top)
app.add_typer(features, name="features")


@app.callback()
def cluster() -> None:
    """Show the brokers, elect leaders, move replicas, check their logs, change what the brokers do together."""


@app.command()
def info(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output_format: Format = "table") -> None:
    """Show the cluster's id, its brokers and how its partitions are.

    \b
    kbroker cluster info
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import is_table, print_object, print_rows

    described, topics = with_admin(bootstrap, _describe)
    rows = _broker_rows(described, topics)
    counts = _partition_counts(topics)
    if is_table(output_format):
        typer.echo(f"cluster {described.cluster_id}")
        typer.echo(", ".join(f"{value} {name.replace('_', ' ')}" for name, value in counts.items()))
        columns = ("broker", "host", "port", "rack", "controller", "leads", "replicas", "in_sync")
        print_rows(rows, columns, output_format)
    else:
        print_object({"cluster_id": described.cluster_id, **counts, "brokers": rows}, output_format)


async def _describe(admin: "Admin") -> "tuple[ClusterDescription, dict[str, TopicDescription]]":
    return await admin.describe_cluster(), await admin.describe_topics()


def _broker_rows(described: "ClusterDescription", topics: "dict[str, TopicDescription]") -> list[dict[str, Any]]:
    partitions = [each for topic in topics.values() for each in topic.partitions]
    return [
        {
            "broker": broker.id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "controller": broker.id == described.controller_id,
            "leads": sum(each.leader == broker.id for each in partitions),
            "replicas": sum(broker.id in each.replicas for each in partitions),
            "in_sync": sum(broker.id in each.isr for each in partitions),
        }
        for broker in described.brokers
    ]


def _partition_counts(topics: "dict[str, TopicDescription]") -> dict[str, int]:
    from kbroker.cli.admin import partition_state

    states = [partition_state(each) for topic in topics.values() for each in topic.partitions]
    return {
        "topics": len(topics),
        "partitions": len(states),
        "under_replicated": states.count("under-replicated"),
        "offline": states.count("offline"),
    }


@app.command("elect-leaders")
def elect_leaders(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Default: all.")] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Where nobody in sync is left, take any replica: RECORDS MAY BE LOST.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say where an election is needed.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Give leadership back to the preferred (first) replicas; or, with --unclean, to any that is left.

    \b
    kbroker cluster elect-leaders flights
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_rows

    rows = with_admin(bootstrap, lambda admin: _elect(admin, topics, unclean, dry_run))
    print_rows(rows, ("topic", "partition", "leader", "wanted", "state"), output_format, empty="no election is needed")
    failed = sum(row["state"] not in ("planned", "elected") for row in rows)
    if failed:
        raise CommandFailed(f"{failed} of {len(rows)} elections failed")


async def _elect(admin: "Admin", topics: list[str] | None, unclean: bool, dry_run: bool) -> list[dict[str, Any]]:
    from kbroker.client.types import TopicPartition

    described = await admin.describe_topics(topics or None)
    rows = {
        TopicPartition(name, each.partition): {
            "topic": name,
            "partition": each.partition,
            "leader": each.leader,
            "wanted": None if unclean else each.replicas[0],
            "state": "planned",
        }
        for name, topic in described.items()
        for each in topic.partitions
        if (each.leader is None if unclean else each.leader != each.replicas[0])
    }
    if not dry_run:
        await _hold_elections(admin, rows, unclean)
    return list(rows.values())


async def _hold_elections(admin: "Admin", rows: "dict[TopicPartition, dict[str, Any]]", unclean: bool) -> None:
    from kbroker.cli.progress import progress_bar
    from kbroker.client.types import ElectionType

    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    wanted = list(rows)
    with progress_bar("electing leaders", len(wanted)) as show:
        for first in range(0, len(wanted), ELECTIONS_PER_REQUEST):
            some = wanted[first : first + ELECTIONS_PER_REQUEST]
            for partition, error in (await admin.elect_leaders(some, kind)).items():
                rows[partition]["state"] = "elected" if error is None else error.code.name.lower()
            show(first + len(some))

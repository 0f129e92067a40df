"""`kbroker topic`: list, describe, create, alter and delete; produce and consume have modules of their own."""

from typing import Annotated

import typer

from kbroker.cli.clone import clone_topic
from kbroker.cli.consume import consume
from kbroker.cli.delete_records import delete_records, empty
from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format, TopicSetting, parse_settings
from kbroker.cli.produce import produce

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.command()(produce)
app.command()(consume)
app.command("clone")(clone_topic)
app.command("delete-records")(delete_records)
app.command()(empty)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
OptionalTopics = Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Names; default: all.")]


@app.command("list")
def list_topics(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
    internal: Annotated[bool, typer.Option("--internal", help="Kafka's own topics too.")] = False,
) -> None:
    """List the topics.

    \b
    kbroker topic list --format json
    """
    from kbroker.cli.admin import topic_rows, with_admin
    from kbroker.cli.output import print_rows

    rows = with_admin(bootstrap, lambda admin: topic_rows(admin, internal))
    print_rows(rows, ("topic", "partitions", "replicas"), output_format, empty="no topics")


@app.command()
def describe(
    topics: OptionalTopics = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions whose in-sync replicas are not all.")
    ] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Only partitions without a leader.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Show each partition: leader, replicas, in-sync replicas, first and next offset.

    \b
    kbroker topic describe flights
    kbroker topic describe --under-replicated
    """
    from kbroker.cli.admin import partition_rows, with_admin
    from kbroker.cli.output import print_rows

    wanted = {"under-replicated", "offline"} if under_replicated else {"offline"} if offline else None
    rows = with_admin(bootstrap, lambda admin: partition_rows(admin, topics or None, wanted))
    columns = ("topic", "partition", "leader", "replicas", "isr", "start_offset", "end_offset", "state")
    print_rows(rows, columns, output_format, empty="no topics" if wanted is None else "no such partitions")


@app.command()
def create(
    topic: Topic,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Default: the broker's num.partitions.")
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", "-r", min=1, help="Default: the broker's default.replication.factor."),
    ] = None,
    config: TopicSetting = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="A topic that is there is no error.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Make a topic.

    \b
    kbroker topic create flights --partitions 12 --config retention.ms=86400000
    """
    settings = parse_settings(config, "--config")
    from kbroker.cli.admin import with_admin
    from kbroker.protocol.errors import ErrorCode, KafkaError

    try:
        made = with_admin(
            bootstrap, lambda admin: admin.create_topic(topic, partitions or -1, replicas or -1, settings)
        )
    except KafkaError as error:
        if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
            raise
        typer.echo(f"{topic} is there already", err=True)
    else:
        counts = f": partitions {made.partitions}, replicas {made.replication_factor}" if made.partitions > 0 else ""
        typer.echo(f"made {topic}{counts}", err=True)


@app.command()
def alter(
    topic: Topic,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="The new, higher number of partitions.")
    ] = None,
    config: TopicSetting = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to the default; may be repeated.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add partitions; set and unset configuration keys.

    \b
    kbroker topic alter flights --partitions 24
    """
    settings = parse_settings(config, "--config")
    if partitions is None and not settings and not unset:
        raise typer.BadParameter("nothing to alter: give --partitions, --config or --unset")
    from kbroker.cli.admin import with_admin
    from kbroker.client.types import ResourceType

    changes: dict[str, str | None] = {**settings, **dict.fromkeys(unset or ())}
    if partitions is not None:
        with_admin(bootstrap, lambda admin: admin.create_partitions({topic: partitions}))
        typer.echo(f"{topic} has {partitions} partitions", err=True)
    if changes:
        with_admin(bootstrap, lambda admin: admin.alter_configs(ResourceType.TOPIC, topic, changes))
        typer.echo(f"{topic}: changed {', '.join(changes)}", err=True)


@app.command()
def delete(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of the topics.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics with all their records.

    \b
    kbroker topic delete flights-test
    """
    from kbroker.cli.admin import with_admin

    with_admin(bootstrap, lambda admin: admin.delete_topics(topics))
    typer.echo(f"deleted {', '.join(topics)}", err=True)

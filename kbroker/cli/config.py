"""`kbroker config`: the settings of topics and brokers."""

from typing import Annotated, Literal

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format, parse_settings

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Kind = Annotated[Literal["topic", "broker"], typer.Argument(metavar="topic|broker", help="Whose settings.")]


@app.command("list")
def list_configs(kind: Kind, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output_format: Format = "table") -> None:
    """List topics or brokers with the number of keys that were set on each.

    \b
    kbroker config list topic
    """
    from kbroker.cli.admin import changed_configs, with_admin
    from kbroker.cli.output import print_rows
    from kbroker.client.types import ResourceType

    rows = with_admin(bootstrap, lambda admin: changed_configs(admin, ResourceType[kind.upper()]))
    print_rows(rows, ("name", "changed_keys"), output_format, empty=f"no {kind}s")


@app.command()
def describe(
    kind: Kind,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Topic names or broker ids.")],
    everything: Annotated[bool, typer.Option("--all", "-a", help="The keys at their default too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Show keys, values and where each value comes from.

    \b
    kbroker config describe topic flights
    """
    from kbroker.cli.admin import config_rows, with_admin
    from kbroker.cli.output import print_rows
    from kbroker.client.types import ResourceType

    rows = with_admin(bootstrap, lambda admin: config_rows(admin, ResourceType[kind.upper()], names, everything))
    columns = ("name", "key", "value", "source", "read_only")
    print_rows(rows, columns, output_format, empty="every key has its default; --all shows them")


@app.command()
def alter(
    kind: Kind,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Topic name or broker id; '' is every broker.")],
    setting: Annotated[
        list[str] | None, typer.Option("--set", "-c", metavar="KEY=VALUE", help="May be repeated.")
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Back to the default; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: Annotated[
        str | None,
        typer.Option("--zookeeper", metavar="HOST:PORT/…", help="Unset keys of a broker that does not start."),
    ] = None,
) -> None:
    """Set keys, and take keys back to their defaults.

    \b
    kbroker config alter topic flights --set retention.ms=86400000
    """
    changes: dict[str, str | None] = {**parse_settings(setting), **dict.fromkeys(unset or ())}
    if not changes:
        raise typer.BadParameter("nothing to alter: give --set or --unset")
    if zookeeper is not None:
        if kind != "broker" or not name.isdecimal() or setting or dry_run:
            raise typer.BadParameter("--zookeeper goes with broker, its id and --unset only")
        _unset_in_zookeeper(zookeeper, name, unset or [])
        typer.echo(f"broker {name}: no longer in ZooKeeper: {', '.join(changes)}", err=True)
        return
    from kbroker.cli.admin import with_admin
    from kbroker.client.types import ResourceType

    with_admin(
        bootstrap,
        lambda admin: admin.alter_configs(ResourceType[kind.upper()], name, changes, validate_only=dry_run),
    )
    whose = f"{kind} {name}" if name else "all brokers"
    typer.echo(f"{whose}: {'could be changed' if dry_run else 'changed'}: {', '.join(changes)}", err=True)


def _unset_in_zookeeper(connect: str, name: str, keys: list[str]) -> None:
    """Take keys out of what ZooKeeper holds for a broker that is down."""
    from kbroker.client.errors import error_for
    from kbroker.cluster.without_brokers import logged_in
    from kbroker.controller.zookeeper import ZooKeeper
    from kbroker.protocol.errors import ErrorCode

    async def without(present: dict[str, str]) -> dict[str, str]:
        unknown = ", ".join(key for key in keys if key not in present)
        if unknown:
            raise error_for(ErrorCode.INVALID_CONFIG, f"not set for broker {name} in ZooKeeper: {unknown}")
        return {key: value for key, value in present.items() if key not in keys}

    async def unset(store: ZooKeeper) -> None:
        if name in map(str, await store.brokers()):
            raise error_for(ErrorCode.INVALID_REQUEST, f"broker {name} runs: alter it with -b")
        await store.change_config("brokers", name, without, needs_controller=False)

    logged_in(connect, unset)

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
) -> None:
    """Set keys, and take keys back to their defaults.

    \b
    kbroker config alter topic flights --set retention.ms=86400000
    """
    changes: dict[str, str | None] = {**parse_settings(setting), **dict.fromkeys(unset or ())}
    if not changes:
        raise typer.BadParameter("nothing to alter: give --set or --unset")
    from kbroker.cli.admin import with_admin
    from kbroker.client.types import ResourceType

    with_admin(
        bootstrap,
        lambda admin: admin.alter_configs(ResourceType[kind.upper()], name, changes, validate_only=dry_run),
    )
    whose = f"{kind} {name}" if name else "all brokers"
    typer.echo(f"{whose}: {'could be changed' if dry_run else 'changed'}: {', '.join(changes)}", err=True)

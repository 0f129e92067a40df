"""`kbroker cluster features`: what the brokers do together, and raising or lowering it."""

from typing import Annotated

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Wanted = Annotated[str, typer.Argument(metavar="FEATURE=LEVEL", help="As transaction.version=2.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say whether it could be.")]


@app.callback()
def features() -> None:
    """Show what the brokers can do together, and which of it counts; change that."""


@app.command()
def describe(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output_format: Format = "table") -> None:
    """Show the features: the levels that a broker supports, and the one that counts (0: none)."""
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_rows

    found = with_admin(bootstrap, lambda admin: admin.describe_features())
    columns = ("feature", "lowest", "highest", "level")
    rows = [
        dict(zip(columns, (each.name, each.lowest, each.highest, each.level), strict=True)) for each in found.values()
    ]
    print_rows(rows, columns, output_format, empty="these brokers know no features")


@app.command()
def upgrade(wanted: Wanted, dry_run: DryRun = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Raise a feature's level, which every broker of the cluster must support."""
    _update(wanted, bootstrap, downgrade=False, dry_run=dry_run)


@app.command()
def downgrade(wanted: Wanted, dry_run: DryRun = False, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """Lower a feature's level; 0: it counts no more, so that brokers without it may join."""
    _update(wanted, bootstrap, downgrade=True, dry_run=dry_run)


def _update(wanted: str, bootstrap: str, *, downgrade: bool, dry_run: bool) -> None:
    from kbroker.cli.admin import with_admin

    feature, equals, level = wanted.partition("=")
    if not equals or not level.isdigit():
        raise typer.BadParameter(f"{wanted!r} is not FEATURE=LEVEL", param_hint="FEATURE=LEVEL")
    with_admin(
        bootstrap,
        lambda admin: admin.update_feature(feature, int(level), downgrade=downgrade, validate_only=dry_run),
    )
    typer.echo(f"{feature} {'could be' if dry_run else 'is'} {level}")

"""`kbroker quota`: how much clients may use."""

from typing import Annotated, Any

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format, parse_settings

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("user", "client_id", "ip", "key", "limit")
DEFAULT = "*"

User = Annotated[str | None, typer.Option("--user", "-u", help="Of this user; * is any user without a limit.")]
ClientId = Annotated[str | None, typer.Option("--client-id", "-i", help="Of clients with this id; * is any other id.")]
Ip = Annotated[str | None, typer.Option("--ip", help="Of this address or host; * is any other.")]


def _entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    given = {"user": user, "client-id": client_id, "ip": ip}
    entity = {kind: None if name == DEFAULT else name for kind, name in given.items() if name is not None}
    if not entity:
        raise typer.BadParameter("say whose limits: --user, --client-id, both, or --ip")
    return entity


@app.command("list")
def list_quotas(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output_format: Format = "table") -> None:
    """List all limits.

    \b
    kbroker quota list
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_rows

    rows: list[dict[str, Any]] = []
    for quota in with_admin(bootstrap, lambda admin: admin.describe_client_quotas()):
        named = {kind: DEFAULT if name is None else name for kind, name in quota.entity.items()}
        who = {"user": named.get("user"), "client_id": named.get("client-id"), "ip": named.get("ip")}
        rows += [{**who, "key": key, "limit": limit} for key, limit in sorted(quota.limits.items())]
    rows.sort(key=lambda row: [row[column] or "" for column in COLUMNS[:4]])
    print_rows(rows, COLUMNS, output_format, empty="no limits")


@app.command("set")
def set_limits(
    limits: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="producer_byte_rate=1000000, …")],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set limits of a user, a client id, a user's client id, or an address.

    \b
    kbroker quota set producer_byte_rate=1000000 --user alice
    """
    from kbroker.cli.admin import with_admin

    entity = _entity(user, client_id, ip)
    changes: dict[str, float | None] = {}
    for key, text in parse_settings(limits, "KEY=VALUE").items():
        try:
            changes[key] = float(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is no number", param_hint=key) from None
    with_admin(bootstrap, lambda admin: admin.alter_client_quotas(entity, changes, validate_only=dry_run))
    typer.echo(f"{'could set' if dry_run else 'set'} {', '.join(changes)}", err=True)


@app.command()
def remove(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="producer_byte_rate, consumer_byte_rate, …")],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove limits: the next less specific one holds then, if there is one.

    \b
    kbroker quota remove producer_byte_rate --user alice
    """
    from kbroker.cli.admin import with_admin

    entity = _entity(user, client_id, ip)
    changes: dict[str, float | None] = dict.fromkeys(keys)
    with_admin(bootstrap, lambda admin: admin.alter_client_quotas(entity, changes))
    typer.echo(f"removed {', '.join(changes)}", err=True)

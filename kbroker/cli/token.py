"""`kbroker token`: delegation tokens, by which jobs log in as whoever made them, without that user's password.

A token's HMAC is its secret: `create` prints it, the other commands take the token's id and ask the brokers for it.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format, seconds_of

if TYPE_CHECKING:
    from kbroker.client.admin import Admin
    from kbroker.client.types import DelegationToken

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("token_id", "owner", "requester", "renewers", "expires", "ends")

TokenId = Annotated[str, typer.Argument(metavar="TOKEN_ID", help="The token's id.")]
Owner = Annotated[list[str] | None, typer.Option("--owner", metavar="TYPE:NAME", help="Of them only; may be repeated.")]


@app.command()
def create(
    renewer: Annotated[
        list[str] | None,
        typer.Option("--renewer", "-r", metavar="TYPE:NAME", help="Who else may renew and end it; may be repeated."),
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="TYPE:NAME", help="Who logs in by it. Default: yourself.")
    ] = None,
    lifetime: Annotated[
        str | None,
        typer.Option("--lifetime", metavar="7d", help="Until when it may be renewed. Default: the brokers'."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Make a token, and print its id and its HMAC: sasl.username and sasl.password, with sasl.tokenauth=true.

    \b
    kbroker token create
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import is_table, print_rows

    life_ms = _milliseconds(lifetime, "--lifetime")
    token = with_admin(
        bootstrap,
        lambda admin: admin.create_delegation_token(owner=owner, renewers=renewer or (), max_lifetime_ms=life_ms),
    )
    if not is_table(output_format):
        print_rows([{**_row(token), "hmac": token.login["sasl_password"]}], (), output_format)
        return
    typer.echo(f"sasl.username={token.token_id}\nsasl.password={token.login['sasl_password']}\n")  # never folded
    print_rows([_row(token)], COLUMNS[1:], output_format)


@app.command()
def describe(owner: Owner = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output_format: Format = "table") -> None:
    """Show the tokens that you may see, without their secrets.

    \b
    kbroker token describe
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_rows

    found = with_admin(bootstrap, lambda admin: admin.describe_delegation_tokens(owner))
    rows = [_row(token) for token in sorted(found, key=lambda token: (token.owner, token.expiry_timestamp))]
    print_rows(rows, COLUMNS, output_format, empty="no tokens")


@app.command()
def renew(
    token_id: TokenId,
    period: Annotated[
        str | None, typer.Option("--for", metavar="1d", help="For how long from now. Default: the brokers'.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Let a token live on; it never lives longer than its end.

    \b
    kbroker token renew 3kQr0Zz8RsWnSxYb --for 1d
    """
    from kbroker.cli.admin import with_admin

    period_ms = _milliseconds(period, "--for")

    async def work(admin: "Admin") -> int:
        return await admin.renew_delegation_token((await _find(admin, token_id)).hmac, period_ms)

    typer.echo(f"{token_id} expires {_time(with_admin(bootstrap, work))}", err=True)


@app.command()
def expire(
    token_id: TokenId,
    period: Annotated[
        str | None, typer.Option("--for", metavar="1h", help="It still holds for so long. Default: not at all.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """End a token: nobody logs in by it any more.

    \b
    kbroker token expire 3kQr0Zz8RsWnSxYb
    """
    from kbroker.cli.admin import with_admin

    period_ms = _milliseconds(period, "--for")

    async def work(admin: "Admin") -> int:
        return await admin.expire_delegation_token((await _find(admin, token_id)).hmac, period_ms)

    typer.echo(f"{token_id} expires {_time(with_admin(bootstrap, work))}", err=True)


async def _find(admin: "Admin", token_id: str) -> "DelegationToken":
    from kbroker.cli.errors import CommandFailed

    for token in await admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token
    raise CommandFailed(f"there is no token {token_id!r} that you may see")


def _milliseconds(text: str | None, option: str) -> int:
    return -1 if text is None else round(seconds_of(text, option) * 1000)


def _row(token: "DelegationToken") -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "expires": _time(token.expiry_timestamp),
        "ends": _time(token.max_timestamp),
    }


def _time(timestamp_ms: int) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")

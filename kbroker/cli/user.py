"""`kbroker user`: who may log in by SCRAM, also before the first broker starts (`--zookeeper`)."""

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format

if TYPE_CHECKING:
    from kbroker.cluster.scram_users import ScramUsers

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

T = TypeVar("T")
COLUMNS = ("user", "mechanism", "iterations")

Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Mechanism = Annotated[
    list[str] | None,
    typer.Option("--mechanism", "-m", help="SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated. Default: both."),
]
ZooKeeper = Annotated[
    str | None,
    typer.Option("--zookeeper", metavar="HOST:PORT/…", help="Write to ZooKeeper, for a cluster that does not run yet."),
]


@app.command("list")
def list_users(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, zookeeper: ZooKeeper = None, output_format: Format = "table"
) -> None:
    """List the users and their mechanisms.

    \b
    kbroker user list
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_rows

    if zookeeper is None:
        found = with_admin(bootstrap, lambda admin: admin.describe_users())
    else:
        known = _in_zookeeper(zookeeper, lambda users: users.read(None))
        found = {
            user: {name: each.iterations for name, each in credentials.items()} for user, credentials in known.items()
        }
    rows = [
        {"user": user, "mechanism": mechanism, "iterations": iterations}
        for user, mechanisms in sorted(found.items())
        for mechanism, iterations in sorted(mechanisms.items())
    ]
    print_rows(rows, COLUMNS, output_format, empty="no users")


@app.command()
def add(
    user: Name,
    mechanism: Mechanism = None,
    iterations: Annotated[int, typer.Option(help="4096 to 16384: how much work it is to try a password.")] = 4096,
    password: Annotated[
        str | None,
        typer.Option(
            envvar="KBROKER_USER_PASSWORD",
            help="Others may see it on the command line: without this it is asked for, or read from standard input.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    zookeeper: ZooKeeper = None,
) -> None:
    """Let a user log in with a password, or give it another one.

    \b
    kbroker user add alice
    """
    from kbroker.cli.admin import with_admin

    mechanisms = _mechanisms(mechanism)
    if not 4096 <= iterations <= 16384:
        raise typer.BadParameter("4096 to 16384", param_hint="--iterations")
    secret = _password() if password is None else password
    if not secret:
        raise typer.BadParameter("it is empty", param_hint="--password")
    if zookeeper is None:
        with_admin(bootstrap, lambda admin: admin.set_user(user, secret, mechanisms=mechanisms, iterations=iterations))
    else:
        from kbroker.cluster.without_brokers import new_credential

        wanted = {name: new_credential(name, secret, iterations) for name in mechanisms}
        _in_zookeeper(zookeeper, lambda users: users.change(user, wanted, without_controller=True))
    typer.echo(f"{user} may log in by {' or '.join(mechanisms)}", err=True)


@app.command()
def delete(
    user: Name, mechanism: Mechanism = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, zookeeper: ZooKeeper = None
) -> None:
    """Take away what a user logs in with.

    \b
    kbroker user delete alice
    """
    from kbroker.cli.admin import with_admin

    chosen = _mechanisms(mechanism) if mechanism else None
    if zookeeper is None:
        with_admin(bootstrap, lambda admin: admin.delete_user(user, mechanisms=chosen))
    else:
        _in_zookeeper(zookeeper, lambda users: _delete(users, user, chosen))
    typer.echo(f"{user} has no {' and no '.join(chosen) if chosen else 'SCRAM credential'} any more", err=True)


async def _delete(users: "ScramUsers", user: str, chosen: list[str] | None) -> None:
    there = (await users.read([user])).get(user, {})
    wanted = list(there) if chosen is None else chosen
    if not wanted or any(name not in there for name in wanted):
        from kbroker.client.errors import error_for
        from kbroker.protocol.errors import ErrorCode

        raise error_for(ErrorCode.RESOURCE_NOT_FOUND, f"user {user} has no such credential")
    await users.change(user, dict.fromkeys(wanted), without_controller=True)


def _mechanisms(given: list[str] | None) -> list[str]:
    from kbroker.security.scram import HASHES

    names = [name.upper() for name in given or HASHES]
    for name in names:
        if name not in HASHES:
            raise typer.BadParameter(f"{name} is none of {', '.join(HASHES)}", param_hint="--mechanism")
    return list(dict.fromkeys(names))


def _password() -> str:
    """Ask for it twice at a terminal, else read a line."""
    if sys.stdin.isatty():
        answer: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return answer
    return sys.stdin.readline().rstrip("\r\n")


def _in_zookeeper(connect: str, work: "Callable[[ScramUsers], Awaitable[T]]") -> T:
    """Run the work on what stands in ZooKeeper."""
    from kbroker.cluster.scram_users import ScramUsers
    from kbroker.cluster.without_brokers import logged_in

    return logged_in(connect, lambda zookeeper: work(ScramUsers(zookeeper)))

"""`kbroker page`: a web page on any Kafka cluster."""

import importlib.util
import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from kbroker.cli.errors import CommandFailed
from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from kbroker.cli.profiles import chosen_bootstrap, client_settings

TOKEN_VARIABLE = "KBROKER_PAGE_TOKEN"
PEM = "(PEM); the page is served over TLS then."
LIBRARIES = ("jinja2", "starlette", "uvicorn")


def page(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to serve; other addresses than loopback take a login.")
    ] = "127.0.0.1:8080",
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Let the page change topics, settings, groups, access; produce.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"Holds the token of the login; else ${TOKEN_VARIABLE}, or a new one."),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(metavar="FILE", help=f"Certificate {PEM}")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key (PEM).")] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="URL", help="A schema registry: framed Avro is written out.")
    ] = None,
) -> None:
    """Serve a web page on a cluster, of kbroker or Apache Kafka, until Ctrl-C.

    \b
    kbroker page -b broker:9092
    kbroker --profile production page --listen 0.0.0.0:8080 --certificate page.pem --key page.key
    """
    host, port = host_and_port(listen)
    check_libraries()
    from kbroker.page.options import PageOptions, is_loopback
    from kbroker.page.server import address_of, serve
    from kbroker.page.server import listen as listen_on

    token = os.environ.get(TOKEN_VARIABLE) if token_file is None else token_file.read_text().strip()
    if token_file is not None and not token:
        raise CommandFailed(f"{token_file} is empty: it holds the token of the login")
    is_new = not token and not is_loopback(host)
    options = PageOptions(
        chosen_bootstrap(bootstrap),
        host,
        port,
        allow_writes,
        secrets.token_urlsafe(24) if is_new else token or None,
        client_settings(),
        None if certificate is None else str(certificate),
        None if key is None else str(key),
        registry,
    )
    try:
        listener = listen_on(options)
    except OSError as error:
        raise CommandFailed(f"{listen}: {error.strerror or error}; --listen takes another address") from None
    typer.echo(f"the page on {options.bootstrap} is at {address_of(options, listener)}; Ctrl-C ends it")
    if not is_loopback(host) and certificate is None:
        typer.echo("without --certificate the token and all that is shown go over the network in clear text", err=True)
    if is_new:
        typer.echo(f"the token to log in: {options.token}")
    serve(options, listener)


def host_and_port(text: str) -> tuple[str, int]:
    """Read HOST:PORT, [HOST]:PORT or a port of loopback."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host = "127.0.0.1"
    if not port.isdecimal() or int(port) > 65_535 or not host:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)


def check_libraries() -> None:
    """Raise CommandFailed when the page cannot be served here, before anything is begun for it."""
    for name in LIBRARIES:
        if importlib.util.find_spec(name) is None:
            raise CommandFailed(f"{name} is not installed: pip install 'kbroker[page]'")

"""`kbroker cluster`: the brokers."""

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def cluster() -> None:
    """Show the brokers."""


@app.command()
def info(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, output_format: Format = "table") -> None:
    """Show the cluster's id and its brokers."""
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import print_object, print_rows

    described = with_admin(bootstrap, lambda admin: admin.describe_cluster())
    rows = [
        {
            "broker": broker.id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "controller": broker.id == described.controller_id,
        }
        for broker in described.brokers
    ]
    if output_format == "table":
        typer.echo(f"cluster {described.cluster_id}")
        print_rows(rows, ("broker", "host", "port", "rack", "controller"), output_format)
    else:
        print_object({"cluster_id": described.cluster_id, "brokers": rows}, output_format)

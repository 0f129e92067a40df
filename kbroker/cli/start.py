"""`kbroker start`: one broker, from Kafka's own configuration keys, in this process."""

from pathlib import Path
from typing import Annotated

import typer

from kbroker.cli.options import Setting, parse_settings


def start(
    properties_file: Annotated[
        Path, typer.Argument(metavar="SERVER.PROPERTIES", exists=True, dir_okay=False, help="Kafka's broker keys.")
    ],
    setting: Setting = None,
    ready_file: Annotated[Path | None, typer.Option(help="JSON file to write when the broker serves.")] = None,
) -> None:
    """Run one broker until SIGTERM, SIGHUP or Ctrl-C, which is a controlled shutdown.

    \b
    kbroker start server.properties
    """
    overrides = parse_settings(setting)
    from kbroker.config.broker_config import read_properties
    from kbroker.process import run

    raise typer.Exit(run({**read_properties(properties_file), **overrides}, ready_file))

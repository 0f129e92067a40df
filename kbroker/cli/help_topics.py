"""`kbroker help`: what several commands have in common, by subject, and what each command is for."""

import importlib
import inspect
from typing import Annotated

import typer

TOPICS = {
    "positions": ("kbroker.cli.positions", "Where reading begins and ends: -o, --to, --before."),
    "profiles": ("kbroker.cli.profiles", "How the command line reaches a cluster: --profile and -X."),
    "formats": ("kbroker.cli.output", "How rows are printed: --format."),
    "records": ("kbroker.cli.record_format", "How records are written: topic consume -f."),
    "filters": ("kbroker.cli.record_filter", "Which records topic consume writes: --key, --grep, -H."),
    "completion": ("kbroker.cli.completion", "Commands, topics and groups completed by the shell."),
    "exit": ("kbroker.cli", "What the exit status says."),
}
"""Subject -> the module whose text tells it, and one line."""


def help_topics(
    subject: Annotated[str | None, typer.Argument(metavar="[SUBJECT|COMMAND]", help="Default: lists them.")] = None,
) -> None:
    """Tell about a subject, or about a command.

    \b
    kbroker help positions
    kbroker help topic
    """
    from kbroker.cli import COMMANDS, main

    if subject in COMMANDS:
        main([subject, "--help"])
    elif subject in TOPICS:
        typer.echo(inspect.cleandoc(importlib.import_module(TOPICS[subject][0]).__doc__ or ""))
    elif subject is None or subject == "topics":
        typer.echo("Subjects (kbroker help SUBJECT):")
        for name, (_, line) in TOPICS.items():
            typer.echo(f"  {name:<12} {line}")
        typer.echo("\nCommands (kbroker COMMAND --help):")
        for name, command in COMMANDS.items():
            typer.echo(f"  {name:<12} {command.help}")
    else:
        raise typer.BadParameter(f"there is no {subject!r}: kbroker help lists all", param_hint="SUBJECT")

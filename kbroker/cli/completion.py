"""Completion of commands, options, topics and groups in shells.

    source <(kbroker completion bash)          in ~/.bashrc; zsh the same
    kbroker completion fish > ~/.config/fish/completions/kbroker.fish

Topics and groups are those of the cluster that the words so far lead to (-b, --profile, -X). When it does not answer
within a second none are proposed, and nothing is said: you are in the middle of a line.
"""
# With what `kbroker completion` prints, a shell runs kbroker at each Tab, with VARIABLE set and the words so far in
# others, and gets one proposal in a line.

import asyncio
import contextlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

VARIABLE = "_KBROKER_COMPLETE"
ASKING_S = 1.0
NAMES = {"TOPIC": "topics", "GROUP": "groups"}
"""How metavars of parameters that take names of a cluster begin."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One word, as click's completion items are."""

    value: str
    type: str = "plain"
    help: str | None = None


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="bash|zsh|fish", help="Of which shell.")],
) -> None:
    """Print what lets a shell complete commands, options, topics and groups.

    \b
    source <(kbroker completion bash)
    kbroker completion fish > ~/.config/fish/completions/kbroker.fish
    """
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="kbroker", complete_var=VARIABLE, shell=shell))


def propose() -> None:
    """Print proposals for the words so far."""
    from typer._completion_classes import completion_init
    from typer.main import get_command

    from kbroker.cli import build_app
    from kbroker.cli.profiles import take_settings

    words = words_so_far()
    with contextlib.suppress(
        Exception
    ):  # a profile that is not there: no reason to say anything in the middle of a line
        take_settings(words)
    command: Any = get_command(build_app(words))
    for parameter in _parameters(command):
        kind = kind_of(parameter.metavar)
        if kind:
            parameter.shell_complete = _asker(kind)
    completion_init()
    command(args=[], prog_name="kbroker")


def words_so_far() -> list[str]:
    """Return what stands on the line before the cursor, without the program's name."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    try:
        return shlex.split(line)[1:]
    except ValueError:  # a quote that is still open
        return line.split()[1:]


def kind_of(metavar: str | None) -> str:
    """Return what a parameter takes the names of; "" for others."""
    plain = (metavar or "").removeprefix("[")
    return next((kind for start, kind in NAMES.items() if plain.startswith(start)), "")


def _parameters(command: Any) -> list[Any]:
    below = getattr(command, "commands", {}).values()
    return [*command.params, *(each for child in below for each in _parameters(child))]


def _asker(kind: str) -> Any:
    def propose_names(context: Any, incomplete: str) -> list[Proposal]:
        with contextlib.suppress(Exception):
            bootstrap = context.params.get("bootstrap") or os.environ.get("KBROKER_BOOTSTRAP")
            return [Proposal(name) for name in names(kind, bootstrap) if name.startswith(incomplete)]
        return []

    return propose_names


def names(kind: str, bootstrap: str | None) -> Sequence[str]:
    """Return the names of all topics or groups; raises where nobody tells in time."""
    from kbroker.cli.options import DEFAULT_BOOTSTRAP
    from kbroker.cli.profiles import chosen_bootstrap, settings_for
    from kbroker.client.admin import Admin

    async def ask() -> list[str]:
        options: dict[str, Any] = {**settings_for("admin"), "request_timeout_ms": int(ASKING_S * 1000)}
        async with Admin(chosen_bootstrap(bootstrap or DEFAULT_BOOTSTRAP), **options) as admin:
            return sorted(await (admin.list_topics() if kind == "topics" else admin.list_groups()))

    async def ask_in_time() -> list[str]:
        return await asyncio.wait_for(ask(), ASKING_S)

    return asyncio.run(ask_in_time())

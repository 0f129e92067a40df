"""Running the command line as a user does; in this process, because a new one for each call takes most of a second."""

import contextlib
import io
import json
import signal
import sys
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from typer.main import get_command

from kbroker.cli import build_app, main


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def kbroker(*arguments: str, given: bytes = b"") -> Done:
    """Run `kbroker …`; `given` is its standard input."""
    standard_input = io.TextIOWrapper(io.BytesIO(given))
    output, errors = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    status: Any = 0
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        with (
            patch.object(sys, "stdin", standard_input),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            main(arguments)
    except SystemExit as end:
        status = end.code
    finally:
        signal.signal(signal.SIGINT, interrupt)
    return Done(status or 0, written(output), written(errors))


def written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


def succeed(*arguments: str, given: bytes = b"") -> str:
    """Run a command that must succeed; returns what it printed."""
    done = kbroker(*arguments, given=given)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def rows(*arguments: str) -> list[dict[str, Any]]:
    """Run a command with --format json; returns its rows."""
    parsed = json.loads(succeed(*arguments, "--format", "json"))
    assert isinstance(parsed, list)
    return parsed


def fail(*arguments: str, given: bytes = b"") -> str:
    """Run a command that must fail with status 1; returns its one line on stderr."""
    done = kbroker(*arguments, given=given)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.startswith("kbroker: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def understand(*words: str, placeholders: bool = False) -> None:
    """Have the command line read the words without doing anything; raises what it says of wrong ones.

    With placeholders words may be left out, and stand for others (`-b HOST:PORT`).
    """
    context: Any = None
    rest = list(words)
    if "--profile" in rest:
        at = rest.index("--profile")
        del rest[at : at + 2]
    command: Any = get_command(build_app(rest))
    while hasattr(command, "commands"):
        context = command.make_context(None, list(rest), parent=context, resilient_parsing=not rest)
        if not context._protected_args + context.args:
            return
        _, command, rest = command.resolve_command(context, context._protected_args + context.args)
    command.make_context(None, list(rest), parent=context, resilient_parsing=placeholders)

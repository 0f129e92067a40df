"""The command line: `kbroker COMMAND …`.

Exit status: 0 done, 1 failed (one line on stderr says why), 2 wrong usage.
"""
# Each command lives in a module of its own, which is imported only when that command runs: `kbroker --help` must answer
# at once. So the table below says what each command is for, and the modules' own texts are not asked.

import atexit
import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import typer


class Command(NamedTuple):
    """One entry of the command table: `module.attribute` is a Typer app (of subcommands) or a function."""

    module: str
    attribute: str
    help: str


COMMANDS = {
    "dev": Command("kbroker.cli.dev", "dev", "Run ZooKeeper and brokers on this machine, for development."),
    "start": Command("kbroker.cli.start", "start", "Run one broker from a server.properties file."),
    "zookeeper": Command("kbroker.cli.zookeeper", "zookeeper", "Run a ZooKeeper on this machine."),
    "jvm": Command("kbroker.cli.jvm", "jvm", "Print the home of a JVM, for Spark."),
    "topic": Command("kbroker.cli.topic", "app", "Make, change, read and write topics."),
    "user": Command("kbroker.cli.user", "app", "Show, add and delete users who log in by SCRAM."),
    "token": Command("kbroker.cli.token", "app", "Make, show, renew and end delegation tokens."),
    "group": Command("kbroker.cli.group", "app", "Show, move and delete groups of consumers."),
    "transaction": Command("kbroker.cli.transaction", "app", "Show transactions, and end those that hang."),
    "config": Command("kbroker.cli.config", "app", "Show and change settings of topics and brokers."),
    "acl": Command("kbroker.cli.acl", "app", "Show and change who may do what."),
    "quota": Command("kbroker.cli.quota", "app", "Show and change how much clients may use."),
    "cluster": Command("kbroker.cli.cluster", "app", "Show brokers, elect leaders, move replicas, change features."),
    "page": Command("kbroker.cli.page", "page", "Serve a web page on any Kafka cluster."),
    "verify": Command("kbroker.cli.verify", "app", "Judge what any Kafka cluster does under faults."),
    "log-dir": Command("kbroker.cli.log_dir", "app", "Show what lies on the brokers' disks."),
    "log": Command("kbroker.cli.log", "app", "Read and check log files offline."),
    "completion": Command("kbroker.cli.completion", "completion", "Complete words in bash, zsh or fish."),
    "help": Command("kbroker.cli.help_topics", "help_topics", "Tell about positions, profiles, formats, filters."),
}


OBJECTS_BETWEEN_COLLECTIONS = 200_000
"""What a command loads stays: looking through it for garbage at every 700, as by default, took an eighth of a list, and
twice during the imports still a tenth.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    if arguments is None:  # the process is ours
        open_closed_streams()
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
        atexit.register(gc.freeze)  # else the interpreter looks through all of it as it ends: a sixth of a list
    words = list(sys.argv[1:] if arguments is None else arguments)
    if os.environ.get("_KBROKER_COMPLETE"):
        from kbroker.cli.completion import propose

        propose()
        return
    try:
        words = _take_settings(words)
        try:
            _command(words)(words, prog_name="kbroker")
        finally:
            sys.stdout.flush()  # while somebody can be told that it failed
    except BrokenPipeError:
        leave_quietly()
    except Exception as error:
        from kbroker.cli.errors import one_line, with_next_step
        from kbroker.cli.output import printable

        reason = one_line(error)
        if reason is None:
            raise
        lost = _output_is_lost()
        where = "standard output: " if lost and isinstance(error, OSError) else ""
        print(f"kbroker: {where}{printable(with_next_step(error, reason))}", file=sys.stderr)
        if lost:
            leave_quietly()
        sys.exit(1)


def open_closed_streams() -> None:
    """Have the use of a stream that is closed (`>&-`) fail as any write or read does, and its number be no socket's."""
    for name, mode, flags in (("stdin", "r", os.O_WRONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))


def _output_is_lost() -> bool:
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _take_settings(words: list[str]) -> list[str]:
    """Take out what says how to reach the cluster; what an earlier command of this process said holds no more."""
    says_something = os.environ.get("KBROKER_PROFILE") or any(word.startswith(("-X", "--profile")) for word in words)
    if not says_something and "kbroker.cli.profiles" not in sys.modules:
        return words
    from kbroker.cli.profiles import take_settings

    try:
        return take_settings(words)
    except typer.BadParameter as error:
        print(f"kbroker: {error.format_message()}", file=sys.stderr)
        sys.exit(2)


def command_in(words: Sequence[str]) -> str | None:
    """Return the command that the words ask for: the first that is no option, nor an option's value."""
    left = iter(words)
    for word in left:
        if word in ("--profile", "-X"):
            next(left, None)
        elif not word.startswith("-"):
            return word
    return None


def build_app(words: Sequence[str]) -> typer.Typer:
    """Return the application; of the commands, only the one that `words` ask for is loaded."""
    wanted = command_in(words)
    app = typer.Typer(
        name="kbroker",
        help="A Kafka-compatible broker, its clients and its tools.",
        no_args_is_help=True,
        add_completion=False,
        # Plain help: rich's panels would take a third of the time in which help has to answer.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_global_options)
    for name, command in COMMANDS.items():
        if name != wanted:
            app.command(name, help=command.help)(_not_loaded)
            continue
        target = getattr(importlib.import_module(command.module), command.attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=name, help=command.help)
        else:
            app.command(name)(target)
    return app


def _command(words: Sequence[str]) -> Any:
    from typer.main import get_command

    from kbroker.cli.plain_values import read_plainly

    command = get_command(build_app(words))
    read_plainly(command)
    return command


def _not_loaded() -> None:
    raise AssertionError("only the command that was asked for is ever run")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"kbroker {version('kbroker')}")
        except PackageNotFoundError:
            typer.echo("kbroker, run from a checkout that is not installed")
        raise typer.Exit


def _global_options(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_show_version, help="Show the version."),
    profile: str = typer.Option("", "--profile", metavar="NAME", help="Settings of a cluster, see docs/security.md."),
    setting: str = typer.Option("", "-X", metavar="KEY=VALUE", help="A setting of the client; may be repeated."),
) -> None:
    pass


def leave_quietly(status: int = 1) -> NoReturn:
    """Whoever read our output has gone (`kbroker … | head`): nobody is left to tell."""
    # The interpreter flushes stdout at its end; that must not fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)

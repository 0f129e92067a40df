"""`kbroker verify`: run a workload against any Kafka cluster under faults, and judge what it did."""

import contextlib
import logging
import random
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, seconds_of
from kbroker.cli.profiles import chosen_bootstrap, client_settings

app = typer.Typer(rich_markup_mode=None)

Edn = Annotated[bool, typer.Option("--edn", help="Write the history as EDN too, for Jepsen's checkers.")]
UNKNOWN_STATUS = 2


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    workload: Annotated[
        Literal["append", "queue", "txn", "group", "compact"], typer.Option(help="What the processes do.")
    ] = "append",
    duration: Annotated[str, typer.Option("--for", metavar="10m", help="How long: a number and s, m, h or d.")] = "1m",
    seed: Annotated[
        int | None, typer.Option(help="Draws all that is random; default: a new one, which is said.")
    ] = None,
    nemesis: Annotated[
        str, typer.Option(metavar="none|proxy|FILE", help="What breaks: nothing, links, or what a YAML file says.")
    ] = "none",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the history and the report go.")] = None,
    client: Annotated[Literal["confluent", "kbroker"], typer.Option(help="Whose clients.")] = "confluent",
    processes: Annotated[int, typer.Option(min=2, help="How many at the same time.")] = 8,
    topics: Annotated[int, typer.Option(min=1, help="How many topics.")] = 2,
    partitions: Annotated[int, typer.Option(min=1, help="Of each topic.")] = 3,
    replicas: Annotated[int, typer.Option(min=0, help="Of each partition; default: 3, or all brokers.")] = 0,
    fault_seconds: Annotated[float, typer.Option(min=0.1, help="About how long each fault and each pause is.")] = 5.0,
    final_seconds: Annotated[
        float, typer.Option(min=1, help="How long the last phase goes on when it reads nothing new.")
    ] = 60.0,
    keep_topics: Annotated[bool, typer.Option("--keep-topics", help="Do not delete the topics at the end.")] = False,
    edn: Edn = False,
) -> None:
    """Run a workload under faults, and judge its history; exit 0: valid, 1: an anomaly, 2: nobody knows.

    \b
    kbroker verify -b broker:9092 --workload txn --for 10m --nemesis proxy --out results
    kbroker verify check results       # judge it again, without a cluster
    """
    if context.invoked_subcommand is not None:
        return
    import time

    with _unknown_when_it_fails():
        _need_numpy()
    _mute_clients()
    from kbroker.verify.nemesis import make_nemesis
    from kbroker.verify.runner import Plan, run_test

    chosen = random.randrange(1_000_000) if seed is None else seed
    plan = Plan(
        chosen_bootstrap(bootstrap),
        workload,
        seconds_of(duration),
        chosen,
        nemesis,
        client,
        processes,
        topics,
        partitions,
        replicas,
        fault_seconds,
        final_seconds,
        keep_topics,
        client_settings(),
    )
    folder = out or Path(f"verify-{workload}-{time.strftime('%Y%m%d-%H%M%S')}")
    with _unknown_when_it_fails():
        breaks = make_nemesis(nemesis, chosen)
        _check_reach(bootstrap)
        run_test(plan, folder, lambda text: print(text, file=sys.stderr, flush=True), breaks)
        _judge(folder, edn)


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with a history.jsonl.")], edn: Edn = False
) -> None:
    """Judge a recorded history again, without a cluster.

    \b
    kbroker verify check verify-output
    """
    with _unknown_when_it_fails():
        _need_numpy()
        _judge(folder, edn)


@contextlib.contextmanager
def _unknown_when_it_fails(status: int = UNKNOWN_STATUS) -> Iterator[None]:
    """What goes wrong with the test says nothing of the cluster: nobody knows, and 1 would be an anomaly.

    Where one was found before, that is what `status` goes on saying.
    """
    from kbroker.cli import leave_quietly
    from kbroker.cli.errors import one_line, with_next_step
    from kbroker.verify.clients import ClientProblem, LibraryMissing
    from kbroker.verify.history import DamagedHistory
    from kbroker.verify.hooks import HookFailed
    from kbroker.verify.runner import TrialFailed

    try:
        yield
    except typer.Exit:
        raise
    except BrokenPipeError:
        leave_quietly(status)
    except Exception as error:
        is_known = isinstance(error, (ClientProblem, DamagedHistory, HookFailed, LibraryMissing, TrialFailed))
        line = str(error) if is_known else one_line(error)
        if line is None:
            traceback.print_exc()
            line = f"the test itself failed: {type(error).__name__}: {error}"
        print(f"kbroker: {with_next_step(error, line)}", file=sys.stderr)
        raise typer.Exit(status) from error


def _mute_clients() -> None:
    """Processes crash on purpose; what our clients have to say about that is no news."""
    logging.getLogger("kbroker.client").addHandler(logging.NullHandler())


def _check_reach(bootstrap: str) -> None:
    """Say at once that no broker is there: clients that outlast faults go on trying for a minute."""
    from kbroker.cli.admin import check_reach
    from kbroker.client.errors import ConfigurationError

    # Settings may be librdkafka's own, which it alone can judge.
    with contextlib.suppress(ConfigurationError):
        check_reach(bootstrap)


def _need_numpy() -> None:
    from kbroker.cli.errors import CommandFailed

    try:
        import numpy  # noqa: F401
    except ImportError as error:
        raise CommandFailed("numpy is not installed: pip install 'kbroker[verify]'") from error


def _judge(folder: Path, edn: bool) -> None:
    from kbroker.verify.checker import EXIT_STATUS, judge_folder
    from kbroker.verify.report import report_text

    judgement = judge_folder(folder)
    text = report_text(judgement)
    status = EXIT_STATUS[judgement.verdict]
    with _unknown_when_it_fails(status or UNKNOWN_STATUS):
        try:
            (folder / "report.txt").write_text(text)
            _write_page(folder, judgement)
            if edn:
                _write_edn(folder)
        finally:
            print(text, end="", flush=True)
    raise typer.Exit(status)


def _write_page(folder: Path, judgement: Any) -> None:
    from kbroker.verify.picture import draw_picture, make_page

    try:
        picture = draw_picture(judgement.availability.timeline)
    except ImportError:
        print("matplotlib is not installed: no picture (pip install 'kbroker[verify]')", file=sys.stderr)
        return
    (folder / "timeline.png").write_bytes(picture)
    (folder / "report.html").write_text(make_page(judgement, picture))


def _write_edn(folder: Path) -> None:
    from kbroker.verify.edn import edn_lines
    from kbroker.verify.history import HISTORY_FILE, read_history

    with (folder / "history.edn").open("w") as file:
        file.writelines(f"{line}\n" for line in edn_lines(read_history(folder / HISTORY_FILE)))

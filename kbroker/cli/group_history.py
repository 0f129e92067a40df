"""`kbroker group history`: when a group rebalanced, why, how long it stood still, and what to change."""

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format, Looks, Watch

if TYPE_CHECKING:
    from kbroker.client.admin import Admin
    from kbroker.client.types import GroupRebalance

COLUMNS = ("time", "broker", "generation", "members", "duration_ms", "reasons", "outcome", "advice")
NOTHING = "nothing is known of {}: it has not rebalanced while the brokers that coordinate it have been running"


def history(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")],
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only the last so many.")] = None,
    watch: Watch = None,
    count: Looks = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Tell a group's rebalances: when, who came or went and why, how long it stood still, what to change.

    Only kbroker's brokers tell, each what happened while it coordinated the group.

    \b
    kbroker group history billing
    kbroker group history billing --last 1 --format json
    kbroker group history billing --watch 2
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import is_table, print_rows

    async def work(admin: "Admin") -> None:
        shown: set[GroupRebalance] = set()
        looks = 0
        while True:
            told = (await admin.group_history(group))[-(last or 0) :]
            news = [each for each in told if each not in shown]
            if is_table(output_format):
                _print_story(news, NOTHING.format(group) if not looks else "")
            elif news or not looks:
                print_rows([row(each) for each in news], COLUMNS, output_format, one_of_many=watch is not None)
            # Who did not answer this time may tell the same again next time.
            shown.update(told)
            looks += 1
            if watch is None or looks == count:
                return
            await asyncio.sleep(watch)

    with_admin(bootstrap, work)


def row(rebalance: "GroupRebalance") -> dict[str, Any]:
    """Return a rebalance for programs."""
    values = asdict(rebalance)
    values["reasons"], values["advice"] = list(rebalance.reasons), list(rebalance.advice)
    return {"time": _time(rebalance.timestamp_ms), **values}


def _print_story(rebalances: Iterable["GroupRebalance"], nothing: str) -> None:
    from kbroker.cli.output import say

    is_empty = True
    for rebalance in rebalances:
        is_empty = False
        say(f"{_time(rebalance.timestamp_ms)}  {rebalance.outcome or _without_outcome(rebalance)}")
        for reason in rebalance.reasons:
            say(f"    {reason}")
        for advice in rebalance.advice:
            say(f"    > {advice}")
    if is_empty and nothing:
        say(nothing, err=True)


def _without_outcome(rebalance: "GroupRebalance") -> str:
    return "under way" if rebalance.duration_ms is None else f"broker {rebalance.broker}"


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(sep=" ", timespec="milliseconds")

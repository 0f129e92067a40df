"""`kbroker cluster scrub`: have the brokers read their closed segments again, now, and say what is damaged."""

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.errors import CommandFailed, attempt
from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format

if TYPE_CHECKING:
    from kbroker.client.admin import Admin
    from kbroker.client.types import Scrub, TopicPartition

BROKER_COLUMNS = ("broker", "segments", "bytes", "damaged", "mended", "state")
DAMAGE_COLUMNS = ("broker", "topic", "partition", "file", "position", "offset", "end_offset", "state", "why")
LOOK_AGAIN_S = 0.5
PATIENCE_S = 20.0
"""So long a broker may not answer before it is given up."""


def scrub(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC[:0,1]", help="Default: all; may be repeated.")
    ] = None,
    broker: Annotated[
        list[int] | None, typer.Option("--broker", metavar="ID", help="Default: all; may be repeated.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Have the brokers read the closed segments of their logs from their disks, and check every batch.

    What is damaged is shown with its place, and mended from an in-sync replica where there is one. Brokers read at
    log.scrub.max.bytes.per.second. Ends with status 1 when something was damaged, or could not be checked.

    \b
    kbroker cluster scrub
    kbroker cluster scrub --topic flights --topic orders:0,1 --broker 2
    """
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import is_table, print_object, print_rows

    problems: list[str] = []
    scrubs = with_admin(bootstrap, lambda admin: _scrub(admin, topic or [], broker or [], problems))
    rows, damages = [row(number, each) for number, each in scrubs.items()], damage_rows(scrubs.values())
    if is_table(output_format):
        print_rows(rows, BROKER_COLUMNS, output_format)
        if damages:
            typer.echo()
            print_rows(damages, DAMAGE_COLUMNS, output_format)
    else:
        print_object({"brokers": rows, "damages": damages}, output_format)
    if damages:
        problems.append(f"{len(damages)} damaged segment{'' if len(damages) == 1 else 's'} found")
    if not any(scrubs.values()) and not problems:
        problems.append("none of these brokers scrubs: only kbroker's do")
    if problems:
        raise CommandFailed("; ".join(problems))


async def _scrub(
    admin: "Admin", topics: list[str], brokers: list[int], problems: list[str]
) -> "dict[int, Scrub | None]":
    """Scrub on the brokers side by side; None for those that do not."""
    from kbroker.cli.admin import partitions_of
    from kbroker.cli.progress import progress_bar

    partitions = await partitions_of(admin, topics) if topics else None
    known = sorted(each.id for each in (await admin.describe_cluster()).brokers)
    # Who holds replicas is asked for, too: of who is down nobody knows whether it is good.
    wanted = set(brokers) or await _holders(admin, partitions)
    problems += [f"broker {each}: it is not there" for each in sorted(wanted - set(known))]
    brokers = sorted(set(brokers) & set(known)) if brokers else known
    found: dict[int, Scrub | None] = dict.fromkeys(brokers)
    with progress_bar("scrubbing", None, "bytes") as show:

        async def one(number: int) -> None:
            async for state in _looks(admin, number, partitions, problems):
                found[number] = state
                show(sum(each.checked_bytes for each in found.values() if each is not None))

        await asyncio.gather(*(one(number) for number in brokers))
    return found


async def _holders(admin: "Admin", partitions: "list[TopicPartition] | None") -> set[int]:
    """Return the brokers that are to have replicas of these partitions (None: of all)."""
    chosen = None if partitions is None else set(partitions)
    described = await admin.describe_topics(None if chosen is None else {each.topic for each in chosen})
    return {
        broker
        for name, topic in described.items()
        for each in topic.partitions
        if chosen is None or (name, each.partition) in chosen
        for broker in each.replicas
    }


async def _looks(admin: "Admin", broker: int, partitions: "list[TopicPartition] | None", problems: list[str]) -> Any:
    """Yield how far a broker is, until it is through or has been silent for too long."""
    scrub_id, clock = uuid.uuid4().bytes, asyncio.get_running_loop().time
    heard_at = -PATIENCE_S  # who refuses, or is not there, does so at once
    while True:
        silence: list[str] = []
        state = await attempt(f"broker {broker}", admin.scrub(scrub_id, broker, partitions), silence)
        if not silence:
            if state is None:
                return
            heard_at = clock()
            yield state
            if state.is_over:
                break
        elif clock() - heard_at > PATIENCE_S:
            problems += silence
            return
        await asyncio.sleep(LOOK_AGAIN_S)
    if state.checked_segments < state.segments:
        problems.append(f"broker {broker} gave up after {state.checked_segments} of {state.segments} segments")


def row(broker: int, scrub: "Scrub | None") -> dict[str, Any]:
    """What a broker has read."""
    damages = () if scrub is None else scrub.damages
    states = [each.state for each in damages]
    if scrub is None:
        return {"broker": broker, **dict.fromkeys(BROKER_COLUMNS[1:-1]), "state": "not scrubbed"}
    is_whole = scrub.is_over and scrub.checked_segments == scrub.segments
    return {
        "broker": broker,
        "segments": scrub.checked_segments,
        "bytes": scrub.checked_bytes,
        "damaged": len(damages),
        "mended": states.count("mended"),
        "state": ("damaged" if damages else "good") if is_whole else "not whole",
    }


def damage_rows(scrubs: "Iterable[Scrub | None]") -> list[dict[str, Any]]:
    """One row for each damaged segment."""
    return [
        {
            "broker": each.broker_id,
            **{name: value for name, value in asdict(each).items() if name not in ("broker_id", "segment")},
            "file": f"{each.topic}-{each.partition}/{each.segment:020d}.log",
        }
        for scrub in scrubs
        if scrub is not None
        for each in scrub.damages
    ]

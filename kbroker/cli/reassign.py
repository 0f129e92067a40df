"""`kbroker cluster reassign`: move replicas to other brokers, watch them move, take moves back."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.errors import CommandFailed
from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Format

if TYPE_CHECKING:
    from kbroker.cli.replica_plan import Plan
    from kbroker.client.admin import Admin
    from kbroker.client.types import ConfigEntry, Reassignment, ResourceType, TopicPartition

    Settings = list[tuple[ResourceType, str, dict[str, str | None]]]
    """Of topics and brokers: kind, name, values."""

POLL_S = 0.2
LONGEST_POLL_S = 2.0
COLUMNS = ("topic", "partition", "replicas", "to", "state")
BROKER_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
TOPIC_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def reassign(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Default: all but internal ones.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="ID,ID,…", help="Brokers that shall hold the replicas. Default: all.")
    ] = None,
    replicas: Annotated[int | None, typer.Option("--replicas", "-r", min=1, help="Replicas of each partition.")] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", exists=True, dir_okay=False, help="A plan as JSON, as --dry-run prints it.")
    ] = None,
    throttle: Annotated[
        int | None, typer.Option("--throttle", min=1, metavar="BYTES", help="Most bytes per second and broker.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would move.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until all has moved.")] = True,
    list_moves: Annotated[bool, typer.Option("--list", help="Show the moves under way.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Wait for the moves under way.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take the moves under way back.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Format = "table",
) -> None:
    """Spread replicas evenly over brokers and racks, with as few moves as that allows.

    \b
    kbroker cluster reassign --dry-run
    """
    chosen = sum((list_moves, watch, cancel))
    if chosen > 1 or (chosen and any((to, replicas, plan, throttle, dry_run))):
        raise typer.BadParameter("--list, --watch and --cancel stand alone")
    if plan is not None and any((topics, to, replicas)):
        raise typer.BadParameter("a --plan says all itself: no topics, --to or --replicas beside it")
    given = plan.read_text() if plan is not None else None
    brokers = _ids(to) if to is not None else None
    from kbroker.cli.admin import with_admin
    from kbroker.cli.output import is_table, print_object, print_rows
    from kbroker.cli.replica_plan import to_json

    if chosen:
        rows = with_admin(bootstrap, lambda admin: _under_way(admin, topics, watch=watch, cancel=cancel))
        print_rows(rows, COLUMNS, output_format, empty="nothing moves")
        return
    current, moves = with_admin(bootstrap, lambda admin: _plan(admin, topics, brokers, replicas, given))
    if dry_run and not is_table(output_format):
        print_object(to_json(moves), output_format)
        return
    if moves and not dry_run:
        with_admin(bootstrap, lambda admin: _carry_out(admin, current, moves, throttle, wait))
    state = "planned" if dry_run else "moved" if wait else "moving"
    rows = [_row(each, current.get(each, ()), target, state) for each, target in moves.items()]
    print_rows(rows, COLUMNS, output_format, empty="nothing has to move")


def _ids(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of broker ids, as 1,2,3", param_hint="--to") from None


def _row(partition: "TopicPartition", replicas: Sequence[int], target: Sequence[int], state: str) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "replicas": list(replicas),
        "to": list(target),
        "state": state,
    }


async def _plan(
    admin: "Admin", topics: Sequence[str] | None, to: Sequence[int] | None, factor: int | None, given: str | None
) -> "tuple[Plan, Plan]":
    """Where the replicas are, and what has to change."""
    from kbroker.cli.replica_plan import PlanError, changes, from_json, spread
    from kbroker.client.types import TopicPartition

    described = await admin.describe_topics(topics or None)
    current = {
        TopicPartition(name, partition.partition): tuple(partition.replicas)
        for name, topic in described.items()
        if topics or given is not None or not topic.is_internal
        for partition in topic.partitions
    }
    if given is None and (running := sorted((await admin.list_reassignments(current)).keys())):
        raise CommandFailed(f"replicas of {running[0]} move already: wait (--watch) or take it back (--cancel)")
    racks = {broker.id: broker.rack for broker in (await admin.describe_cluster()).brokers}
    if unknown := sorted(set(to or ()) - racks.keys()):
        raise CommandFailed(f"there is no broker {unknown[0]}; brokers: {', '.join(map(str, racks))}")
    allowed = {broker: rack for broker, rack in racks.items() if to is None or broker in to}
    try:
        wanted = spread(current, allowed, factor) if given is None else from_json(given)
    except PlanError as error:
        raise CommandFailed(str(error)) from None
    return current, changes(current, wanted)


async def _carry_out(
    admin: "Admin",
    current: "Plan",
    moves: "Plan",
    throttle: int | None,
    wait: bool,
) -> None:
    await _begin(admin, moves, [] if throttle is None else _throttle(current, moves, throttle))
    if not wait:
        return
    await _wait(admin, list(moves))
    await _remove_throttle(admin, {each.topic for each in moves})
    described = await admin.describe_topics({each.topic for each in moves})
    now = {(name, each.partition): each.replicas for name, topic in described.items() for each in topic.partitions}
    left = [each for each, target in moves.items() if now.get(each) != target]
    if left:
        raise CommandFailed(f"{len(left)} moves were taken back or overruled meanwhile, the first is {left[0]}")


async def _under_way(
    admin: "Admin", topics: Sequence[str] | None, *, watch: bool, cancel: bool
) -> list[dict[str, Any]]:
    found = await admin.list_reassignments()
    moves = {each: move for each, move in sorted(found.items()) if not topics or each.topic in topics}
    state = "moving"
    if cancel and moves:
        await admin.alter_reassignments(dict.fromkeys(moves))
        state = "taken back"
    if watch and moves:
        await _wait(admin, list(moves))
        state = "moved"
    if cancel or watch:
        # Also of moves that have ended before: nobody else takes it away.
        await _remove_throttle(admin, topics)
    return [
        _row(partition, [each for each in move.replicas if each not in move.adding], _target(move), state)
        for partition, move in moves.items()
    ]


def _target(move: "Reassignment") -> list[int]:
    return [each for each in move.replicas if each not in move.removing]


async def _begin(admin: "Admin", moves: "Plan", throttle: "Settings") -> None:
    """Set the throttle, then let all move; where nothing does, the throttle is again what it was."""
    before = [(kind, name, await _own(admin, kind, name, values)) for kind, name, values in throttle]
    try:
        await _set(admin, throttle)
        await admin.alter_reassignments(moves)
    except BaseException:
        # Ctrl-C, too, and also when it comes while this is under way: nobody else takes the throttle away.
        restoring = asyncio.create_task(_restore(admin, moves, before))
        try:
            await asyncio.shield(restoring)
        finally:
            await restoring
        raise


async def _restore(admin: "Admin", moves: "Plan", before: "Settings") -> None:
    """Set again what was set, unless something moves after all."""
    found = await admin.list_reassignments()
    if not any(each in found and set(_target(found[each])) == set(target) for each, target in moves.items()):
        await _set(admin, before)


async def _wait(admin: "Admin", partitions: "Sequence[TopicPartition]") -> None:
    """Poll until none of them moves any more, with a bar on standard error."""
    from kbroker.cli.progress import progress_bar

    pause = POLL_S
    with progress_bar("moving replicas", len(partitions)) as show:
        while moving := len(await admin.list_reassignments(partitions)):
            show(len(partitions) - moving)
            await asyncio.sleep(pause)
            pause = min(1.2 * pause, LONGEST_POLL_S)
        show(len(partitions))


def _throttle(current: "Plan", moves: "Plan", rate: int) -> "Settings":
    """As Kafka's tool: leaders' side for the replicas there are, followers' side for those that come."""
    from kbroker.client.types import ResourceType

    brokers: set[int] = set()
    settings: Settings = []
    for topic in {each.topic for each in moves}:
        mine = {each: target for each, target in moves.items() if each.topic == topic}
        sending = [f"{each.partition}:{broker}" for each in mine for broker in current.get(each, ())]
        coming = [
            f"{each.partition}:{broker}"
            for each, target in mine.items()
            for broker in target
            if broker not in current.get(each, ())
        ]
        brokers.update(broker for each, target in mine.items() for broker in (*target, *current.get(each, ())))
        values: Iterable[str] = (",".join(sending), ",".join(coming))
        settings.append((ResourceType.TOPIC, topic, dict(zip(TOPIC_REPLICAS, values, strict=True))))
    for broker in sorted(brokers):
        settings.append((ResourceType.BROKER, str(broker), dict.fromkeys(BROKER_RATES, str(rate))))
    return settings


async def _remove_throttle(admin: "Admin", topics: Iterable[str] | None) -> None:
    """Whoever set it: topics (None: all) that do not move need none, and brokers when nothing moves."""
    from kbroker.client.types import ResourceType

    moving = {each.topic for each in await admin.list_reassignments()}
    every = set(await admin.list_topics(include_internal=True))
    still = sorted(every.intersection(every if topics is None else topics) - moving)
    await _unset(admin, ResourceType.TOPIC, still, TOPIC_REPLICAS)
    if not moving:
        names = [str(broker.id) for broker in (await admin.describe_cluster()).brokers]
        await _unset(admin, ResourceType.BROKER, names, BROKER_RATES)


async def _unset(admin: "Admin", kind: "ResourceType", names: Sequence[str], keys: Sequence[str]) -> None:
    for name, entries in (await admin.describe_configs(kind, names, keys)).items():
        set_here = [key for key, entry in entries.items() if _is_own(kind, entry)]
        if set_here:
            await admin.alter_configs(kind, name, dict.fromkeys(set_here))


async def _set(admin: "Admin", settings: "Settings") -> None:
    for kind, name, values in settings:
        await admin.alter_configs(kind, name, values)


async def _own(admin: "Admin", kind: "ResourceType", name: str, keys: Iterable[str]) -> dict[str, str | None]:
    """What is set for this one, None where nothing is."""
    entries = (await admin.describe_configs(kind, [name], list(keys)))[name]
    return {key: entry.value if _is_own(kind, entry) else None for key, entry in entries.items()}


def _is_own(kind: "ResourceType", entry: "ConfigEntry") -> bool:
    return entry.source == f"DYNAMIC_{kind.name}_CONFIG"

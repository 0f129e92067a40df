"""The list of topics, and one topic: its partitions, its settings, the groups that read it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from kbroker.client.types import ResourceType, TopicDescription, TopicPartition
from kbroker.page.facts import Disks, health_of, led, told, whole_sum
from kbroker.page.guard import form_of
from kbroker.page.page import Page, see_other
from kbroker.page.rendering import Shown, page_of, path_segment
from kbroker.page.replica_map import Moves

if TYPE_CHECKING:
    from kbroker.page.app import View

TOPICS_SHOWN = 50
PARTITIONS_SHOWN = 100
MOST_COUNTED = 2_000
"""Partitions whose offsets are asked for in a list of topics."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in the list; what is None is not known."""

    name: str
    is_internal: bool
    partitions: int
    replicas: int
    under_replicated: int
    offline: int
    size: int | None
    is_size_whole: bool
    """Whether all brokers with a copy have told how large it is."""


def _trouble(topic: TopicDescription, disks: Disks | None, moves: Moves) -> tuple[int, int]:
    health = health_of(topic, moves)
    return -health.offline, -health.under_replicated


ORDERS: dict[str, Callable[[TopicDescription, Disks | None, Moves], Any]] = {
    "partitions": lambda topic, disks, moves: -len(topic.partitions),
    "size": lambda topic, disks, moves: -((disks and disks.bytes_of_topic(topic.name)) or 0),
    "trouble": _trouble,
}
"""Orders besides the one by name, which holds among equals."""


async def topics(page: Page, request: Request) -> Response:
    """List topics, filtered and in pages."""
    described, disks, told_moves = await asyncio.gather(
        page.facts.topics.get(), told(page.facts.disks.get()), told(page.facts.moves.get())
    )
    moves = told_moves.value or {}
    asked = request.query_params
    wanted = asked.get("q", "").strip().lower()
    order = asked.get("sort", "name")
    with_internal = bool(asked.get("internal"))
    found = await asyncio.to_thread(_ordered, described, disks.value, moves, wanted, with_internal, order)
    part = page_of(found, asked.get("page"), TOPICS_SHOWN)
    shown = Shown([_row(topic, disks.value, moves) for topic in part.items], part.page, part.pages, part.total)
    counts = await _records(page, {row.name: described[row.name] for row in shown.items})
    return page.show(
        request, "topics.html", title="Topics", shown=shown, counts=counts, order=order, total=len(described)
    )


def _ordered(
    described: Mapping[str, TopicDescription],
    disks: Disks | None,
    moves: Moves,
    wanted: str,
    with_internal: bool,
    order: str,
) -> list[TopicDescription]:
    """Return all topics that are wanted, in order. For a thread: there may be very many."""
    found = [
        topic
        for name, topic in sorted(described.items())
        if wanted in name.lower() and (with_internal or not topic.is_internal)
    ]
    if order in ORDERS:
        found.sort(key=lambda topic: ORDERS[order](topic, disks, moves))
    return found


async def _records(page: Page, chosen: Mapping[str, TopicDescription]) -> dict[str, int | None]:
    """Count the records of topics."""
    keys: list[TopicPartition] = []
    for topic in chosen.values():
        if len(keys) + len(topic.partitions) <= MOST_COUNTED:
            keys += led(topic)
    offsets = await page.facts.offsets(keys, chosen)
    return {name: records_of(topic, offsets) for name, topic in chosen.items()}


def records_of(topic: TopicDescription, offsets: Mapping[TopicPartition, tuple[int, int]]) -> int | None:
    """Return how many records a topic has; None where a partition's offsets are not known."""
    places = (offsets.get(TopicPartition(topic.name, each.partition)) for each in topic.partitions)
    return whole_sum(None if place is None else place[1] - place[0] for place in places)


def _row(topic: TopicDescription, disks: Disks | None, moves: Moves) -> TopicRow:
    health = health_of(topic, moves)
    replicas = max((len(partition.replicas) for partition in topic.partitions), default=0)
    return TopicRow(
        topic.name,
        topic.is_internal,
        health.partitions,
        replicas,
        health.under_replicated,
        health.offline,
        None if disks is None else disks.bytes_of_topic(topic.name),
        disks is not None and disks.knows_all_of(topic),
    )


async def topic(page: Page, request: Request) -> Response:
    """Show a topic's partitions."""
    name = request.path_params["topic"]
    described, disks, moves = await asyncio.gather(
        page.facts.topic(name), told(page.facts.disks.get()), told(page.facts.moves.get())
    )
    shown = page_of(described.partitions, request.query_params.get("page"), PARTITIONS_SHOWN)
    offsets = await page.facts.offsets_in(described)
    replicas = disks.value.replicas_of(name) if disks.value else {}
    return page.show(
        request,
        "topic.html",
        title=name,
        tab="partitions",
        topic=described,
        shown=shown,
        offsets={key.partition: value for key, value in offsets.items()},
        records=records_of(described, offsets),
        size=sum(size for size, _ in replicas.values()) if replicas else None,
        is_size_whole=disks.value is not None and disks.value.knows_all_of(described),
        replicas=replicas,
        moves={key.partition: move for key, move in (moves.value or {}).items() if key.topic == name},
        health=health_of(described, moves.value or {}),
        disk_problem=disks.problem,
        rates=page.watch.of(name),
    )


async def settings(page: Page, request: Request) -> Response:
    """Show a topic's settings, where each comes from and what it means."""
    name = request.path_params["topic"]
    described, told_settings = await asyncio.gather(
        page.facts.topic(name), told(page.admin.describe_configs(ResourceType.TOPIC, [name]))
    )
    entries = sorted((told_settings.value or {}).get(name, {}).values(), key=lambda entry: entry.name)
    return page.show(
        request,
        "topic_settings.html",
        title=f"{name}: settings",
        tab="settings",
        topic=described,
        entries=entries,
        problem=told_settings.problem,
        action=f"/topics/{path_segment(name)}/settings",
        own_source="DYNAMIC_TOPIC_CONFIG",
    )


async def change_setting(page: Page, request: Request) -> Response:
    """Set or reset one of a topic's settings."""
    name = request.path_params["topic"]
    form = form_of(request)
    change = {form.get("key", ""): None if form.get("what") == "reset" else form.get("value", "")}
    await page.admin.alter_configs(ResourceType.TOPIC, name, change)
    return see_other(f"/topics/{path_segment(name)}/settings?done=changed")


ROUTES: tuple[tuple[str, View], ...] = (
    ("/topics", topics),
    ("/topics/{topic}", topic),
    ("/topics/{topic}/settings", settings),
)
FORMS: tuple[tuple[str, View], ...] = (("/topics/{topic}/settings", change_setting),)

"""The cluster at a glance, the map of its partitions, and each broker with its disks and settings."""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from kbroker.client.types import ResourceType, TopicDescription
from kbroker.page.facts import Health, health_in, health_of, told
from kbroker.page.guard import form_of
from kbroker.page.page import NotThere, Page, see_other
from kbroker.page.rendering import page_of
from kbroker.page.replica_map import BrokerLoad, Moves, brokers_in, draw, loads, placements_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kbroker.page.app import View

ON_OVERVIEW = 24
ON_MAP = 100
"""Topics drawn."""


async def overview(page: Page, request: Request) -> Response:
    """Show how the cluster is."""
    facts = page.facts
    cluster, topics, disks, moves, versions = await asyncio.gather(
        facts.cluster.get(),
        facts.topics.get(),
        told(facts.disks.get()),
        told(facts.moves.get()),
        told(facts.versions.get()),
    )
    known = {broker.id: broker for broker in cluster.brokers}
    brokers, load, health, chosen = await asyncio.to_thread(_glance, tuple(topics.values()), known, moves.value or {})
    return page.show(
        request,
        "overview.html",
        title="Overview",
        cluster=cluster,
        known=known,
        brokers=brokers,
        loads=load,
        disks=disks,
        directories=_by_broker(disks.value.directories if disks.value else ()),
        topics=topics,
        health=health,
        versions=versions.value or {},
        rates=page.watch.of_all(),
        moves=moves.value or {},
        maps=[draw(topic, brokers, moves.value or {}) for topic in chosen],
    )


def _glance(
    topics: Sequence[TopicDescription], known: Iterable[int], moves: Moves
) -> tuple[list[int], list[BrokerLoad], Health, list[TopicDescription]]:
    """Return the brokers, what each has, how all is, and the topics to draw. For a thread: there may be very many."""
    placements = placements_of(topics, moves)
    brokers = brokers_in(placements, known)
    health = health_in(placements.items())

    def worst_first(topic: TopicDescription) -> tuple[int, int, bool, int, str]:
        its = health_of(topic, moves)
        return -its.offline, -its.under_replicated, *_largest_first(topic)

    chosen = nsmallest(ON_OVERVIEW, topics, key=_largest_first if health.is_well else worst_first)
    return brokers, loads(placements, brokers), health, chosen


async def partition_map(page: Page, request: Request) -> Response:
    """Show all topics' partitions on their brokers."""
    facts = page.facts
    cluster, topics, moves = await asyncio.gather(facts.cluster.get(), facts.topics.get(), told(facts.moves.get()))
    brokers = brokers_in(placements_of(topics.values(), {}), (broker.id for broker in cluster.brokers))
    wanted = request.query_params.get("q", "").strip().lower()
    found = [topic for name, topic in sorted(topics.items()) if wanted in name.lower()]
    shown = page_of(found, request.query_params.get("page"), ON_MAP)
    maps = [draw(topic, brokers, moves.value or {}) for topic in shown.items]
    return page.show(request, "map.html", title="Map", brokers=brokers, shown=shown, maps=maps)


async def broker(page: Page, request: Request) -> Response:
    """Show a broker's disks and settings."""
    broker_id = int(request.path_params["broker"])
    cluster = await page.facts.cluster.get()
    described = next((each for each in cluster.brokers if each.id == broker_id), None)
    if described is None:
        raise NotThere(f"the cluster has no broker {broker_id} now")
    settings, disks, versions = await asyncio.gather(
        told(page.admin.describe_configs(ResourceType.BROKER, [broker_id])),
        told(page.facts.disks.get()),
        told(page.facts.versions.get()),
    )
    entries = sorted((settings.value or {}).get(str(broker_id), {}).values(), key=lambda entry: entry.name)
    return page.show(
        request,
        "broker.html",
        title=f"Broker {broker_id}",
        broker=described,
        version=(versions.value or {}).get(broker_id),
        cluster=cluster,
        entries=entries,
        problem=settings.problem,
        directories=_by_broker(disks.value.directories if disks.value else ()).get(broker_id, []),
        disk_problem=(disks.value.problems.get(broker_id, "") if disks.value else disks.problem),
        action=f"/brokers/{broker_id}/settings",
        own_source="DYNAMIC_BROKER_CONFIG",
    )


async def change_broker(page: Page, request: Request) -> Response:
    """Set or reset one of a broker's settings."""
    broker_id = int(request.path_params["broker"])
    form = form_of(request)
    change = {form.get("key", ""): None if form.get("what") == "reset" else form.get("value", "")}
    await page.admin.alter_configs(ResourceType.BROKER, broker_id, change)
    return see_other(f"/brokers/{broker_id}?done=changed")


def _largest_first(topic: TopicDescription) -> tuple[bool, int, str]:
    return topic.is_internal, -len(topic.partitions), topic.name


def _by_broker(directories: Iterable[Any]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for directory in directories:
        found.setdefault(directory.broker_id, []).append(directory)
    return found


ROUTES: tuple[tuple[str, View], ...] = (
    ("/", overview),
    ("/map", partition_map),
    ("/brokers/{broker:int}", broker),
)
FORMS: tuple[tuple[str, View], ...] = (("/brokers/{broker:int}/settings", change_broker),)

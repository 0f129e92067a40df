"""Groups: who is in them, how far they are behind, why they rebalanced, and moving one that nobody is in."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from kbroker.client.types import GroupDescription, TopicPartition
from kbroker.page.facts import Told, told, whole_sum
from kbroker.page.group_reset import TARGETS, keys_of, places_of, read_places, read_reset
from kbroker.page.guard import form_of
from kbroker.page.lags import commits_of, lags_of, sums, times_behind
from kbroker.page.page import NotThere, Page, see_other
from kbroker.page.record_query import WrongQuery
from kbroker.page.rendering import names_of, page_of
from kbroker.page.topic_change_views import check_name

if TYPE_CHECKING:
    from kbroker.page.app import View

GROUPS_SHOWN = 50
MOST_READERS = 500
"""Groups whose commits are asked for to find who reads a topic."""
REBALANCES_SHOWN = 20


async def groups(page: Page, request: Request) -> Response:
    """List groups, filtered and in pages."""
    asked = request.query_params
    wanted, state = asked.get("q", "").strip().lower(), asked.get("state", "")
    told_groups = await page.facts.groups.get()
    listed = told_groups.groups
    found = [group for name, group in sorted(listed.items()) if wanted in name.lower() and state in ("", group.state)]
    shown = page_of(found, asked.get("page"), GROUPS_SHOWN)
    names = [group.group_id for group in shown.items]
    described, lags = await asyncio.gather(told(page.admin.describe_groups(names)), sums(page.facts, names))
    return page.show(
        request,
        "groups.html",
        title="Groups",
        shown=shown,
        described=described.value or {},
        lags={lag.group: lag for lag in lags},
        states=sorted({group.state for group in listed.values() if group.state}),
        state=state,
        total=len(listed),
        problems=told_groups.problems,
    )


async def group(page: Page, request: Request) -> Response:
    """Show one group."""
    name = request.query_params.get("id", "")
    return await _show_group(page, request, name, reset=None)


async def preview(page: Page, request: Request) -> Response:
    """Show where a reset would move a group."""
    name = request.query_params.get("id", "")
    asked = read_reset(request.query_params, int(time.time() * 1000))
    committed, topics = await asyncio.gather(page.admin.list_group_offsets(name), page.facts.topics.get())
    places = await places_of(page.admin, asked, committed, topics)
    rows = [
        (key, committed[key].offset if key in committed else None, place)
        for key, place in sorted(places.offsets.items())
    ]
    return await _show_group(page, request, name, reset=rows, left_out=places.left_out)


async def apply_reset(page: Page, request: Request) -> Response:
    """Move a group to the offsets that were shown."""
    form = form_of(request)
    name = form.get("id", "")
    places = read_places(form.get("places", ""))
    if not places.keys() <= keys_of(await page.facts.topics.get(), {key.topic for key in places}):
        raise WrongQuery("a partition that was shown is gone, or has no leader")
    await page.admin.alter_group_offsets(name, places)
    return see_other("/group?" + urlencode({"id": name, "done": "reset"}))


async def delete(page: Page, request: Request) -> Response:
    """Delete a group that nobody is in, with its commits."""
    form = form_of(request)
    name = form.get("id", "")
    check_name(form, name)
    await page.admin.delete_groups([name])
    page.facts.groups.forget()
    return see_other("/groups?done=deleted")


async def readers(page: Page, request: Request) -> Response:
    """Show the groups that read a topic."""
    topic = await page.facts.topic(request.path_params["topic"])
    told_groups = await page.facts.groups.get()
    listed = sorted(told_groups.groups)
    found = await sums(page.facts, listed[:MOST_READERS], topic.name)
    return page.show(
        request,
        "topic_groups.html",
        title=f"{topic.name}: groups",
        tab="groups",
        topic=topic,
        readers=sorted(found, key=lambda lag: -(lag.lag or 0)),
        left_out=max(0, len(listed) - MOST_READERS),
        problems=told_groups.problems,
    )


async def _show_group(
    page: Page, request: Request, name: str, reset: Any, left_out: Sequence[TopicPartition] = ()
) -> Response:
    described = (await page.admin.describe_groups([name]))[name]
    commits = (await commits_of(page.facts, [name]))[name]
    if described.state == "Dead" and not commits.value:
        raise NotThere(f"there is no group {name}")
    lags, history = await asyncio.gather(lags_of(page.facts, commits.value or {}), told(page.admin.group_history(name)))
    behind: Told[dict[TopicPartition, int]] = await told(times_behind(page.options, lags))
    owners = {key: member for member in described.members for key in member.assignment}
    return page.show(
        request,
        "group.html",
        title=name,
        group=described,
        lags=sorted(lags, key=lambda lag: (-(lag.lag or 0), lag.partition)),
        lag=whole_sum(lag.lag for lag in lags) if commits.value is not None else None,
        behind=behind.value or {},
        most_behind=max((behind.value or {}).values(), default=None),
        owners=owners,
        unread=_unread(described, {lag.partition for lag in lags}),
        history=tuple(reversed(history.value or ()))[:REBALANCES_SHOWN],
        history_problem=history.problem,
        commit_problem=commits.problem,
        topics=sorted({lag.partition.topic for lag in lags}),
        reset=reset,
        left_out=names_of(map(str, left_out)),
        targets=TARGETS,
        places=json.dumps([(*key, after) for key, _, after in reset or ()]),
    )


def _unread(group: GroupDescription, committed: set[TopicPartition]) -> list[TopicPartition]:
    """Return partitions that a member has, and that nothing was committed of."""
    return sorted({key for member in group.members for key in member.assignment} - committed)


ROUTES: tuple[tuple[str, View], ...] = (
    ("/groups", groups),
    ("/group", group),
    ("/group/reset", preview),
    ("/topics/{topic}/groups", readers),
)
FORMS: tuple[tuple[str, View], ...] = (("/group/reset", apply_reset), ("/group/delete", delete))

"""What changes topics: making one, giving it more partitions, deleting its records or itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from kbroker.page.facts import led
from kbroker.page.guard import form_of
from kbroker.page.page import Page, see_other
from kbroker.page.record_query import WrongQuery
from kbroker.page.rendering import path_segment
from kbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.page.app import View

KNOWN_WITHIN_MS = 10_000
"""How long the brokers may take to hear of a topic that was made."""
ITS_OWN = -1
"""Leaves a number to the broker."""
ALL = -1
"""Of a partition's records."""


async def create(page: Page, request: Request) -> Response:
    """Make a topic, and show it."""
    form = form_of(request)
    name = form.get("name", "").strip()
    if not name:
        raise WrongQuery("a topic needs a name")
    partitions, replicas = (number_of(form, field) or ITS_OWN for field in ("partitions", "replicas"))
    await page.admin.create_topic(name, partitions, replicas, settings_of(form))
    await _until_known(page, name)
    return _back(page, name, "created")


async def add_partitions(page: Page, request: Request) -> Response:
    """Give a topic more partitions."""
    name = request.path_params["topic"]
    total = number_of(form_of(request), "partitions")
    if total is None:
        raise WrongQuery("how many partitions should it have?")
    await page.admin.create_partitions({name: total})
    return _back(page, name, "partitions")


async def empty(page: Page, request: Request) -> Response:
    """Delete all records of a topic, up to its end as it is now."""
    topic = await page.facts.topic(request.path_params["topic"])
    check_name(form_of(request), topic.name)
    await page.admin.delete_records(dict.fromkeys(led(topic), ALL))
    return _back(page, topic.name, "emptied")


async def delete(page: Page, request: Request) -> Response:
    """Delete a topic."""
    name = request.path_params["topic"]
    check_name(form_of(request), name)
    await page.admin.delete_topic(name)
    page.facts.forget_topics()
    return see_other("/topics?done=deleted")


def check_name(form: Mapping[str, str], name: str) -> None:
    """Raise WrongQuery unless whoever sent the form has written the name of what will be gone."""
    if form.get("confirm", "") != name:
        raise WrongQuery(f"nothing was deleted: write {name!r} into the field to say that you mean it")


def number_of(form: Mapping[str, str], field: str) -> int | None:
    """Return a field's number, at least 1; None where the field is empty; raises WrongQuery."""
    text = form.get(field, "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 9 or int(text) == 0:
        raise WrongQuery(f"{text!r} is no number of {field}")
    return int(text)


def settings_of(form: Mapping[str, str]) -> dict[str, str]:
    """Read a field of key=value lines; raises WrongQuery."""
    found: dict[str, str] = {}
    for line in filter(None, (line.strip() for line in form.get("settings", "").splitlines())):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise WrongQuery(f"a setting is written as key=value, not {line!r}")
        found[key.strip()] = value.strip()
    return found


async def _until_known(page: Page, name: str) -> None:
    """Wait until a broker that is asked knows a new topic; one that does not by then is for the next view to tell."""
    async for _ in page.admin.cluster.attempts(KNOWN_WITHIN_MS):
        try:
            await page.facts.topic(name)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        else:
            return


def _back(page: Page, name: str, done: str) -> Response:
    page.facts.forget_topics()
    return see_other(f"/topics/{path_segment(name)}?done={done}")


ROUTES: tuple[tuple[str, View], ...] = ()
FORMS: tuple[tuple[str, View], ...] = (
    ("/topics", create),
    ("/topics/{topic}/partitions", add_partitions),
    ("/topics/{topic}/empty", empty),
    ("/topics/{topic}/delete", delete),
)

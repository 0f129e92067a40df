"""Transactions, and who may do what: access rules, users, limits; shown and changed, of a cluster that has them."""

from __future__ import annotations

import asyncio
import math
import time
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from kbroker.client.types import AccessRule, AccessRuleFilter
from kbroker.page.facts import told
from kbroker.page.guard import form_of
from kbroker.page.page import Page, see_other
from kbroker.page.record_query import WrongQuery
from kbroker.page.rendering import page_of
from kbroker.security.acls import CLUSTER_NAME, EVERY_HOST, AclOperation, AclPattern, AclPermission, AclResource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.page.app import View

Word = TypeVar("Word", bound=IntEnum)

SHOWN = 50
SHORTEST_PASSWORD = 8
LIMITS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
ENTITIES = ("user", "client-id", "ip")
ANY_OTHER = "*"
"""How a form names whoever has no limit of their own."""


async def transactions(page: Page, request: Request) -> Response:
    """List transactional ids, with what is open in them."""
    asked = request.query_params
    wanted, state = asked.get("q", "").strip().lower(), asked.get("state", "")
    listed = await told(page.admin.list_transactions())
    every = list((listed.value or {}).values())
    found = [each for each in every if wanted in each.transactional_id.lower() and state in ("", each.state)]
    shown = page_of(found, asked.get("page"), SHOWN)
    described = await told(page.admin.describe_transactions([each.transactional_id for each in shown.items]))
    return page.show(
        request,
        "transactions.html",
        title="Transactions",
        shown=shown,
        described=described.value or {},
        states=sorted({each.state for each in every}),
        state=state,
        problem=listed.problem,
        now_ms=int(time.time() * 1000),
    )


async def access(page: Page, request: Request) -> Response:
    """Show access rules, users and limits."""
    rules, users, limits = await asyncio.gather(
        told(page.admin.describe_acls()),
        told(page.admin.describe_users()),
        told(page.admin.describe_client_quotas()),
    )
    wanted = request.query_params.get("q", "").strip().lower()
    found = [
        rule
        for rule in sorted(rules.value or (), key=lambda rule: (rule.principal, rule.resource, rule.name))
        if wanted in f"{rule.principal} {rule.name} {rule.host} {rule.operation.name}".lower()
    ]
    return page.show(
        request,
        "access.html",
        title="Access",
        rules=rules,
        shown=page_of(found, request.query_params.get("page"), SHOWN),
        users=users,
        limits=limits,
        resources=words(AclResource),
        operations=words(AclOperation),
        limit_names=LIMITS,
    )


async def add_rule(page: Page, request: Request) -> Response:
    """Add an access rule."""
    rule = rule_of({name: text.strip() for name, text in form_of(request).items()})
    if ":" not in rule.principal:
        raise WrongQuery(f"{rule.principal!r} is not TYPE:NAME, as User:alice")
    await page.admin.create_acls([rule])
    return see_other("/access?done=added")


async def remove_rule(page: Page, request: Request) -> Response:
    """Remove just one access rule."""
    rule = rule_of(form_of(request))
    which = AccessRuleFilter(
        rule.resource, rule.name, rule.principal, rule.operation, rule.permission, rule.host, rule.pattern
    )
    if not await page.admin.delete_acls([which]):
        raise WrongQuery("there is no such rule any more")
    return see_other("/access?done=removed")


async def set_user(page: Page, request: Request) -> Response:
    """Let a user log in with a password from now on."""
    form = form_of(request)
    name, password = form.get("name", "").strip(), form.get("password", "")
    if not name or len(password) < SHORTEST_PASSWORD:
        raise WrongQuery(f"a user has a name, and a password of at least {SHORTEST_PASSWORD} characters")
    await page.admin.set_user(name, password)
    return see_other("/access?done=changed")


async def remove_user(page: Page, request: Request) -> Response:
    """Take a user's credentials away."""
    await page.admin.delete_user(form_of(request).get("name", ""))
    return see_other("/access?done=removed")


async def set_limit(page: Page, request: Request) -> Response:
    """Set a limit, or take it away."""
    form = form_of(request)
    key = form.get("key", "")
    if key not in LIMITS:
        raise WrongQuery(f"{key!r} is no limit: {', '.join(LIMITS)} are")
    is_removed = form.get("what") == "remove"
    entity = {kind: form[kind] if is_removed else form[kind].strip() for kind in ENTITIES if form.get(kind, "").strip()}
    if not entity:
        raise WrongQuery(f"whose limit? A user, a client id, both, or an address; {ANY_OTHER} is any other")
    named = {kind: None if name == ANY_OTHER else name for kind, name in entity.items()}
    await page.admin.alter_client_quotas(named, {key: None if is_removed else _limit(form.get("limit", ""))})
    return see_other(f"/access?done={'removed' if is_removed else 'changed'}")


def rule_of(form: Mapping[str, str]) -> AccessRule:
    """Read an access rule; raises WrongQuery."""
    resource = word_of(AclResource, form.get("resource", ""))
    name = CLUSTER_NAME if resource is AclResource.CLUSTER else form.get("name", "")
    if not name:
        raise WrongQuery("a rule needs the name of what it is about; * is every name")
    return AccessRule(
        resource,
        name,
        form.get("principal", ""),
        word_of(AclOperation, form.get("operation", "")),
        word_of(AclPermission, form.get("permission", "")),
        form.get("host", "") or EVERY_HOST,
        word_of(AclPattern, form.get("pattern", "")),
    )


def words(kind: type[IntEnum]) -> list[str]:
    """Return the words a form has for a kind of value of rules."""
    return [each.name.lower() for each in kind if each.name not in ("ANY", "MATCH")]


def word_of(kind: type[Word], text: str) -> Word:
    """Read such a word; raises WrongQuery."""
    if text not in words(kind):
        raise WrongQuery(f"{text!r} is none of {', '.join(words(kind))}")
    return kind[text.upper()]


def _limit(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise WrongQuery(f"{text!r} is no limit: it is a number above 0")
    return number


ROUTES: tuple[tuple[str, View], ...] = (("/transactions", transactions), ("/access", access))
FORMS: tuple[tuple[str, View], ...] = (
    ("/access/rules", add_rule),
    ("/access/rules/remove", remove_rule),
    ("/access/users", set_user),
    ("/access/users/remove", remove_user),
    ("/access/limits", set_limit),
)

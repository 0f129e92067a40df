"""Transactions, and who may do what: access rules, users, limits; of a cluster that has them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from kbroker.page.facts import told
from kbroker.page.page import Page
from kbroker.page.rendering import page_of

if TYPE_CHECKING:
    from kbroker.page.app import View

SHOWN = 50


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
    )


ROUTES: tuple[tuple[str, View], ...] = (("/transactions", transactions), ("/access", access))
FORMS: tuple[tuple[str, View], ...] = ()

"""What all views share: the cluster, the templates, what is allowed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from kbroker.client.admin import Admin
from kbroker.page.facts import Facts
from kbroker.page.guard import FIELD, form_token, needs_login
from kbroker.page.held import Held, TooMany
from kbroker.page.options import PageOptions
from kbroker.page.rates import Watch
from kbroker.page.schemas import Schemas

MOST_READING = 16
VIEWS = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/transactions", "Transactions"),
    ("/access", "Access"),
)
"""What the navigation has."""
NOTICES = {
    "changed": "Changed.",
    "produced": "Written.",
    "reset": "The group was moved.",
    "created": "Created.",
    "deleted": "Deleted.",
    "emptied": "Its records were deleted.",
    "partitions": "It has more partitions now.",
    "added": "Added.",
    "removed": "Removed.",
}


class NotThere(Exception):
    """What was asked for does not exist."""


class NotAllowed(Exception):
    """The page may not do what was asked for."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page on one cluster."""

    options: PageOptions
    admin: Admin
    facts: Facts
    templates: Environment
    watch: Watch
    schemas: Schemas | None = None
    """Where a schema registry was named."""
    closing: set[asyncio.Future[None]] = field(default_factory=set)
    """Clients that are being closed."""
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_READING))
    """Searches, live tails and downloads that run."""
    held: Held = field(default_factory=Held)
    """What they hold."""

    def check_reading(self) -> None:
        """Raise TooMany where no more may read a topic now."""
        if self.reading.locked():
            raise TooMany(
                f"{MOST_READING} searches, live tails and downloads run already: try again when one has ended"
            )

    def show(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
        """Render a view; who has not logged in is not told of the cluster."""
        is_known = self.options.token is None or needs_login(request.scope["path"])
        text = self.templates.get_template(template).render(
            values,
            views=VIEWS,
            path=request.url.path,
            is_form=request.method == "POST",
            query_now=request.query_params.multi_items(),
            asked=dict(request.query_params),
            bootstrap=self.options.bootstrap if is_known else "",
            writes=self.options.allow_writes,
            has_login=is_known and self.options.token is not None,
            csrf_field=FIELD,
            csrf_token=form_token(request),
            notice=NOTICES.get(request.query_params.get("done", ""), ""),
        )
        return HTMLResponse(text, status)


def page_of_request(request: Request) -> Page:
    """Return the page that a request is for."""
    page: Page = request.app.state.page
    return page


def see_other(path: str) -> Response:
    """Send the browser on after a change, so that loading again does not change anything twice."""
    return RedirectResponse(path, 303)

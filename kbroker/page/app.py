"""The application: which address shows which view, and what is said when a view cannot be shown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from kbroker.client.admin import Admin
from kbroker.client.client_config import AdminConfig
from kbroker.client.errors import BrokerError, ConfigurationError, TimedOut
from kbroker.page import (
    access_views,
    group_views,
    message_views,
    overview_views,
    topic_change_views,
    topic_views,
)
from kbroker.page.beside import Beside
from kbroker.page.facts import Facts, reason
from kbroker.page.guard import Guard, form_of, local_path
from kbroker.page.held import TooMany
from kbroker.page.options import PageOptions
from kbroker.page.page import NotAllowed, NotThere, Page, page_of_request, see_other
from kbroker.page.rendering import FOLDER, environment
from kbroker.page.schemas import Schemas
from kbroker.protocol.errors import ErrorCode, KafkaError

View = Callable[[Page, Request], Awaitable[Response]]
ROOMS = (overview_views, topic_views, topic_change_views, message_views, group_views, access_views)
ROUTES: tuple[tuple[str, View], ...] = tuple(route for room in ROOMS for route in room.ROUTES)
FORMS: tuple[tuple[str, View], ...] = tuple(form for room in ROOMS for form in room.FORMS)
"""What changes something: only by POST, and only where that is allowed."""
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE)


def build_app(options: PageOptions) -> Starlette:
    """Return the ASGI application; its clients live from its start to its end."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        def make_admin() -> Admin:
            return Admin(options.bootstrap, **options.for_client(AdminConfig))

        async with make_admin() as admin, Beside(make_admin) as beside:
            facts = Facts(admin, beside)
            schemas = None if options.registry is None else Schemas(options.registry)
            page = app.state.page = Page(options, admin, facts, environment(), beside.watch, schemas)
            try:
                yield
            finally:
                await asyncio.gather(*page.closing, return_exceptions=True)

    guard: list[Guard] = []

    def guarded(app: ASGIApp) -> Guard:
        guard.append(Guard(app, options))
        return guard[0]

    async def login(request: Request) -> Response:
        page = page_of_request(request)
        if request.method == "GET":
            to = local_path(request.query_params.get("to", ""))
            return page.show(request, "login.html", title="Log in", failed=False, to=to)
        form = form_of(request)
        to = local_path(form.get("to", ""))
        cookie = guard[0].login_cookie(form.get("token", ""))
        if cookie is None:
            await guard[0].slow_down(request.scope)
            return page.show(request, "login.html", status=401, title="Log in", failed=True, to=to)
        return _with_cookie(to, cookie)

    async def logout(_: Request) -> Response:
        return _with_cookie("/login", guard[0].logout_cookie())

    routes = [
        *(Route(path, _shown(view), methods=["GET"]) for path, view in ROUTES),
        *(Route(path, _changed(view), methods=["POST"]) for path, view in FORMS),
        Route("/login", login, methods=["GET", "POST"]),
        Route("/logout", logout, methods=["POST"]),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]
    failures = dict.fromkeys(
        (KafkaError, OSError, ConfigurationError, ValueError, NotThere, NotAllowed, TooMany, 404), _failed
    )
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers=failures,
        middleware=[Middleware(guarded)],
    )


def _with_cookie(path: str, cookie: str) -> Response:
    answer = see_other(path)
    answer.headers.append("set-cookie", cookie)
    return answer


def _shown(view: View) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await view(page_of_request(request), request)

    return answer


def _changed(view: View) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        page = page_of_request(request)
        if not page.options.allow_writes:
            raise NotAllowed("nothing is changed from here: start the page with --allow-writes")
        return await view(page, request)

    return answer


async def _failed(request: Request, error: Exception) -> Response:
    """Say why a view cannot be shown."""
    page = page_of_request(request)
    status, heading = 502, "The cluster did not answer"
    text = reason(error)
    if isinstance(error, NotAllowed):
        status, heading = 403, "Not allowed"
    elif isinstance(error, TooMany):
        status, heading = 503, "Too many read"
    elif isinstance(error, KafkaError) and error.code in UNKNOWN:
        status, heading = 404, "There is no such thing"
    elif isinstance(error, NotThere) or getattr(error, "status_code", 0) == 404:
        status, heading, text = 404, "There is no such page", str(error) if isinstance(error, NotThere) else ""
    elif isinstance(error, TimedOut | TimeoutError):
        status = 504
    elif isinstance(error, BrokerError):
        status, heading = 400, "The cluster refused"
    elif isinstance(error, ConfigurationError | ValueError):
        status, heading = 400, "That cannot be asked"
    return page.show(request, "problem.html", status=status, title=heading, heading=heading, text=text)

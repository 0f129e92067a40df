"""Asking the page as a browser does, without a socket: requests to the ASGI application, cookies and forms."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlencode

from starlette.applications import Starlette

from kbroker.page.app import build_app
from kbroker.page.options import PageOptions

HOST = "127.0.0.1:8080"
LIMIT_S = 60.0


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(LIMIT_S):
        while not await condition():  # noqa: ASYNC110 - the cluster tells nobody
            await asyncio.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


class Visitor:
    """A browser: it keeps cookies, and takes a form's token from the page that it saw before."""

    def __init__(self, app: Starlette, host: str = HOST) -> None:
        self.app = app
        self.host = host
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        return await self.ask("GET", path, b"", {"accept": "text/html", **(headers or {})})

    async def see(self, path: str) -> str:
        """Look at a view, which must be there; returns its HTML."""
        answer = await self.get(path)
        assert answer.status == 200, answer.text
        return answer.text

    async def post(self, path: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Answer:
        said = {
            "origin": f"http://{self.host}",
            "content-type": "application/x-www-form-urlencoded",
            **(headers or {}),
        }
        return await self.ask("POST", path, urlencode(form).encode(), said)

    async def submit(self, path: str, form: Mapping[str, str], seen_on: str) -> Answer:
        """Send a form as it stands on another view."""
        return await self.post(path, {"csrf_token": await self.token(seen_on), **form})

    async def token(self, path: str) -> str:
        found = re.search(r'name="csrf_token" value="(\w+)"', await self.see(path))
        assert found is not None
        return found[1]

    async def ask(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        plain, _, query = path.partition("?")
        said = {"host": self.host, **headers}
        if self.cookies:
            said["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(plain),
            "raw_path": plain.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in said.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8080),
        }
        return await self._run(scope, body)

    async def _run(self, scope: dict[str, Any], body: bytes) -> Answer:
        sent: list[Any] = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            if waiting:
                return waiting.pop()
            return await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        headers = [(name.decode(), value.decode()) for name, value in sent[0]["headers"]]
        for name, value in headers:
            if name == "set-cookie":
                key, _, content = value.partition(";")[0].partition("=")
                self.cookies[key] = content
        return Answer(sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]))


@contextlib.asynccontextmanager
async def visiting(bootstrap: str, *, called: str = HOST, **options: Any) -> AsyncIterator[Visitor]:
    """Start the application on a cluster, and visit it under the name it is called by."""
    app = build_app(PageOptions(bootstrap, **options))
    async with app.router.lifespan_context(app):
        yield Visitor(app, called)

"""Who may see the page, and from where a form may come.

Every answer says what a browser may load (nothing but ours) and who may frame it (nobody). On loopback a request must
name this machine as its host, or a stranger's web site could have its own name lead here. Elsewhere it needs the
token: as `Authorization: Bearer …`, or as the cookie that the login gives for it. A wrong one is answered late, and
the log names the address it came from. A form that changes something must come from this page (its Origin) and carry
the token that it was given for the visitor's cookie.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Iterable
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kbroker.page.options import PageOptions, is_loopback

log = logging.getLogger(__name__)

COOKIE = "kbroker_page"
FIELD = "csrf_token"
MAX_FORM_BYTES = 2 << 20
READING = ("/messages/stream", "/messages/download")
"""What reads a topic as long as somebody listens."""
MAX_LOGIN_BYTES = 4 << 10
MAX_FIELDS = 200
WRONG_TOKEN_S = 1.0
"""How long who gives a wrong token waits for the answer; the log has at most one line in this time."""
HEADERS = {
    "content-security-policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, options: PageOptions) -> None:
        self._app = app
        self._options = options
        self._secret = secrets.token_bytes(32)
        self._login_name = f"kbroker_login_{options.port}"
        self._wrong_tokens = 0
        """Since the last line of the log about them."""
        self._logged_at = -WRONG_TOKEN_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visitor = _cookie(scope, COOKIE)
        is_new = visitor is None or len(visitor) != 32
        if visitor is None or is_new:
            visitor = secrets.token_hex(16)
        scope.setdefault("state", {}).update(csrf_token=self._form_token(visitor), form={})

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["cache-control"] = "no-store"
                if is_new:
                    headers.append("set-cookie", self.cookie(COOKIE, visitor))
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
        elif scope["method"] == "POST":
            await self._take_form(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)

    def cookie(self, name: str, value: str) -> str:
        """Return a cookie's header: no script reads it, no other site sends it."""
        secure = "; Secure" if self._options.certificate else ""
        return f"{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def login_cookie(self, token: str) -> str | None:
        """Return the cookie's header of whoever knows the token, else None."""
        return self.cookie(self._login_name, self._login_value()) if self._is_token(token) else None

    def logout_cookie(self) -> str:
        """Return the header that takes the login's cookie away."""
        return self.cookie(self._login_name, "") + "; Max-Age=0"

    async def slow_down(self, scope: Scope) -> None:
        """Note that somebody gave a wrong token, and have them wait."""
        self._wrong_tokens += 1
        if time.monotonic() - self._logged_at >= WRONG_TOKEN_S:
            address = (scope.get("client") or ("an unknown address",))[0]
            log.warning("a wrong token from %s (%d since the last such line)", address, self._wrong_tokens)
            self._wrong_tokens, self._logged_at = 0, time.monotonic()
        await asyncio.sleep(WRONG_TOKEN_S)

    async def _wrong_token(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.slow_down(scope)
        await PlainTextResponse("the token is not right", 401)(scope, receive, send)

    def _login_value(self) -> str:
        return hmac.new(self._secret, b"login", hashlib.sha256).hexdigest()

    def _form_token(self, visitor: str) -> str:
        return hmac.new(self._secret, b"form " + visitor.encode(), hashlib.sha256).hexdigest()

    def _is_token(self, text: str) -> bool:
        wanted = self._options.token
        return wanted is not None and hmac.compare_digest(text.encode(), wanted.encode())

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the answer for who may not come in."""
        headers = Headers(scope=scope)
        if is_loopback(self._options.host) and not is_loopback(_host_name(headers.get("host", ""))):
            return PlainTextResponse("this page is for its own machine only", 421)
        if scope["method"] == "HEAD" and scope["path"].endswith(READING):
            return PlainTextResponse("", 405)
        if is_from_elsewhere(headers, scope["path"]):
            return PlainTextResponse("another site may lead here, and not ask", 403)
        if self._options.token is None or not needs_login(scope["path"]):
            return None
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return None if self._is_token(given.strip()) else self._wrong_token
        cookie = _cookie(scope, self._login_name) or ""
        if hmac.compare_digest(cookie.encode(), self._login_value().encode()):
            return None
        if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
            return RedirectResponse("/login?" + urlencode({"to": _address(scope)}), 303)
        return PlainTextResponse("a token is needed", 401, {"www-authenticate": "Bearer"})

    async def _take_form(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read a form, hold it against its origin and its token, and hand it on."""
        headers = Headers(scope=scope)
        is_login = scope["path"] == "/login"
        body = await _body(receive, MAX_LOGIN_BYTES if is_login else MAX_FORM_BYTES)
        fields = None if body is None else _fields(body)
        if fields is None:
            # What strangers go on to send is not read to its end, as is what a browser must have sent to hear of this.
            end = {"connection": "close"} if is_login else None
            await PlainTextResponse("the form is too large", 413, end)(scope, receive, send)
            return
        origin = headers.get("origin") or headers.get("referer", "")
        is_urlencoded = headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
        token = fields.get(FIELD, [""])[0]
        is_ours = _netloc(origin) == headers.get("host", "") != ""
        expected = str(scope["state"]["csrf_token"])
        if not (is_urlencoded and is_ours and hmac.compare_digest(token.encode(), expected.encode())):
            text = "the form is not of this page, or older than its start: load the page again"
            await PlainTextResponse(text, 403)(scope, receive, send)
            return
        scope["state"]["form"] = {name: values[0] for name, values in fields.items()}
        await self._app(scope, receive, send)


def is_from_elsewhere(headers: Headers, path: str) -> bool:
    """Whether another site has a visitor's browser ask; it may only lead to a view, as a link does."""
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
    return not is_link or path.endswith(READING)


def needs_login(path: str) -> bool:
    """Whether a path is shown only to those who are logged in, where there is a login."""
    return path != "/login" and not path.startswith("/static/")


def local_path(text: str) -> str:
    """Return an address of this page that somebody wants to go to, or else the first one."""
    is_ours = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_ours else "/"


def _address(scope: Scope) -> str:
    query = scope.get("query_string", b"").decode("latin-1")
    return quote(scope["path"]) + (f"?{query}" if query else "")


async def _body(receive: Receive, most: int) -> bytes | None:
    """Return a request's body; None when it is too large."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > most:
            return None
        if not message.get("more_body"):
            return b"".join(pieces)


def _cookie(scope: Scope, name: str) -> str | None:
    texts: Iterable[str] = Headers(scope=scope).getlist("cookie")
    for text in texts:
        found = cookie_parser(text).get(name)
        if found is not None:
            return found
    return None


def _fields(body: bytes) -> dict[str, list[str]] | None:
    """Return a form's fields; None where there are too many."""
    try:
        return parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        return None


def _netloc(address: str) -> str:
    """Return the host and port of an address."""
    try:
        return urlsplit(address).netloc
    except ValueError:
        return ""


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def form_token(request: Request) -> str:
    """Return the token that this visitor's forms carry."""
    return str(request.scope["state"]["csrf_token"])


def form_of(request: Request) -> dict[str, str]:
    """Return the fields of the form that was sent."""
    fields: dict[str, str] = request.scope["state"]["form"]
    return fields

"""Who comes in, and which forms count: no cluster is asked, as the login's and missing pages need none."""

import logging
import time
from collections.abc import Awaitable, Callable

import pytest

from kbroker.page import guard
from kbroker.page.guard import HEADERS, MAX_FIELDS, MAX_FORM_BYTES, MAX_LOGIN_BYTES
from tests.kbroker.page.visiting import Answer, visiting

NOWHERE = "127.0.0.1:1"
TOKEN = "a-token-that-is-long-enough"
MISSING = "/no-such-page"


async def test_every_answer_says_what_a_browser_may_load() -> None:
    async with visiting(NOWHERE) as visitor:
        for path in (MISSING, "/static/page.css", "/static/missing"):
            answer = await visitor.get(path)
            assert {name: answer.header(name) for name in HEADERS} == HEADERS
        assert "no-store" in (await visitor.get(MISSING)).header("cache-control")
    assert "default-src 'self'" in HEADERS["content-security-policy"]
    assert "unsafe" not in HEADERS["content-security-policy"]


@pytest.mark.parametrize("name", ["evil.example", "evil.example:8080", "10.0.0.1:8080", "", "127.0.0.1.evil.example"])
async def test_on_loopback_a_name_of_others_leads_nowhere(name: str) -> None:
    async with visiting(NOWHERE, called=name) as visitor:
        assert (await visitor.get(MISSING)).status == 421


async def test_elsewhere_nothing_is_shown_without_the_token() -> None:
    async with visiting(NOWHERE, called="page.example", host="0.0.0.0", token=TOKEN) as visitor:
        sent_on = await visitor.get(MISSING)
        assert (sent_on.status, sent_on.header("location")) == (303, "/login?to=%2Fno-such-page")
        assert (await visitor.get(MISSING, {"accept": "text/event-stream"})).status == 401
        for given in ("Bearer wrong", "Bearer ", f"Basic {TOKEN}", TOKEN):
            answer = await visitor.get(MISSING, {"authorization": given, "accept": "*/*"})
            assert answer.status == 401, given
        assert (await visitor.get(MISSING, {"authorization": f"Bearer {TOKEN}"})).status == 404
        assert (await visitor.get("/static/page.css")).status == 200


async def test_who_logs_in_gets_a_cookie_that_no_script_reads() -> None:
    async with visiting(NOWHERE, called="page.example", host="0.0.0.0", token=TOKEN) as visitor:
        wrong = await visitor.submit("/login", {"token": "wrong"}, "/login")
        assert (wrong.status, "kbroker_login_8080" in visitor.cookies) == (401, False)
        right = await visitor.submit("/login", {"token": TOKEN}, "/login")
        assert (right.status, right.header("location")) == (303, "/")
        assert (await visitor.get(MISSING)).status == 404
        assert TOKEN not in str(visitor.cookies)
        set_cookie = right.header("set-cookie")
        assert "HttpOnly" in set_cookie
        assert "SameSite=Strict" in set_cookie
        visitor.cookies["kbroker_login_8080"] = "0" * 64
        assert (await visitor.get(MISSING)).status == 303


async def test_a_form_counts_only_from_this_page_with_its_visitors_token() -> None:
    async with visiting(NOWHERE, allow_writes=True) as visitor:
        token = await visitor.token("/login")
        path, form = "/no-such-form", {"csrf_token": token}
        assert (await visitor.post(path, form)).status == 404
        assert (await visitor.post(path, {})).status == 403
        assert (await visitor.post(path, {"csrf_token": token[:-1]})).status == 403
        for origin in ("http://evil.example", "null", "", "http://127.0.0.1:9999"):
            assert (await visitor.post(path, form, {"origin": origin})).status == 403, origin
        assert (await visitor.post(path, form, {"content-type": "text/plain"})).status == 403
        visitor.cookies.clear()
        assert (await visitor.post(path, form)).status == 403


async def test_a_form_without_end_is_not_read() -> None:
    async with visiting(NOWHERE) as visitor:
        assert (await visitor.post("/login", {"token": "x" * (MAX_FORM_BYTES + 1)})).status == 413


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//[x"])
async def test_an_origin_that_is_no_address_is_refused(origin: str) -> None:
    async with visiting(NOWHERE) as visitor:
        token = await visitor.token("/login")
        assert (await visitor.post("/login", {"csrf_token": token}, {"origin": origin})).status == 403


async def test_a_form_of_fields_without_number_is_not_read() -> None:
    async with visiting(NOWHERE) as visitor:
        fields = {f"a{number}": "" for number in range(MAX_FIELDS)}
        token = await visitor.token("/login")
        assert (await visitor.post("/no-such-form", {"csrf_token": token, **fields})).status == 413
        refused = await visitor.post("/login", {"token": "x" * MAX_LOGIN_BYTES})
        assert (refused.status, refused.header("connection")) == (413, "close")


async def test_who_is_not_logged_in_does_not_hear_of_the_cluster() -> None:
    async with visiting(NOWHERE, called="page.example", host="0.0.0.0", token=TOKEN, allow_writes=True) as visitor:
        for path in ("/login", "/static/missing"):
            text = (await visitor.get(path)).text
            assert NOWHERE not in text, path
            assert "writes allowed" not in text, path
        assert (await visitor.get("/loginx")).status == 303
        seen = await visitor.get(MISSING, {"authorization": f"Bearer {TOKEN}"})
        assert NOWHERE in seen.text


@pytest.mark.slow
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_site_may_lead_here_and_not_ask(site: str) -> None:
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    async with visiting(NOWHERE) as visitor:
        assert (await visitor.get(MISSING, link)).status == 404
        assert (await visitor.get(MISSING, {**link, "sec-fetch-site": "same-origin"})).status == 404
        for other in ({"sec-fetch-mode": "no-cors"}, {"sec-fetch-dest": "iframe"}):
            assert (await visitor.get(MISSING, {**link, **other})).status == 403, other
        for path in ("/topics/t/messages/download", "/topics/t/messages/stream"):
            assert (await visitor.get(path, link)).status == 403, path


async def test_a_wrong_token_is_answered_late_and_noted_with_its_address(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guard, "WRONG_TOKEN_S", 0.3)
    async with visiting(NOWHERE, called="page.example", host="0.0.0.0", token=TOKEN) as visitor:
        caplog.set_level(logging.WARNING, guard.__name__)
        asked: list[Callable[[], Awaitable[Answer]]] = [
            lambda: visitor.get(MISSING, {"authorization": "Bearer my-wrong-token"}),
            lambda: visitor.submit("/login", {"token": "my-wrong-token"}, "/login"),
        ]
        for ask in asked:
            started = time.monotonic()
            assert (await ask()).status == 401
            assert time.monotonic() - started >= 0.3
    assert "a wrong token from 127.0.0.1" in caplog.text
    assert "my-wrong-token" not in caplog.text


async def test_a_login_leads_to_where_one_was_going_and_is_ended_by_a_button() -> None:
    async with visiting(NOWHERE, called="page.example", host="0.0.0.0", token=TOKEN) as visitor:
        asked = (await visitor.get("/topics/a%2Fb?x=1&y=%20")).header("location")
        assert 'name="to" value="/topics/a/b?x=1&amp;y=%20"' in await visitor.see(asked)
        for to, expected in (
            ("/groups?q=x", "/groups?q=x"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("", "/"),
        ):
            right = await visitor.submit("/login", {"token": TOKEN, "to": to}, "/login")
            assert (right.status, right.header("location")) == (303, expected)
        assert (await visitor.submit("/logout", {}, "/login")).status == 303
        assert (await visitor.get(MISSING)).status == 303


async def test_a_stream_is_not_begun_for_its_head_alone() -> None:
    async with visiting(NOWHERE) as visitor:
        assert (await visitor.ask("HEAD", "/topics/t/messages/stream?from=live", b"", {})).status == 405

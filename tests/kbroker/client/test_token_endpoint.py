"""Tokens from an OAuth server, and from nobody."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kbroker.client.errors import NotConnected
from kbroker.client.token_endpoint import TokenEndpoint, UnsecuredTokens


class Endpoint(BaseHTTPRequestHandler):
    asked: list[tuple[str, str]] = []
    answer: Any = {}
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], body))
        data = json.dumps(self.answer).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint() -> Iterator[tuple[str, type[Endpoint]]]:
    kind = type("Once", (Endpoint,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", kind
        server.shutdown()
        thread.join()


def test_a_token_is_asked_for_with_id_and_secret(endpoint: tuple[str, type[Endpoint]]) -> None:
    url, server = endpoint
    server.answer = {"access_token": "a.b.c"}
    assert TokenEndpoint(url, "me", "hunter2", "kafka")() == "a.b.c"
    basic = base64.b64encode(b"me:hunter2").decode()
    assert server.asked == [(f"Basic {basic}", "grant_type=client_credentials&scope=kafka")]


@pytest.mark.parametrize(
    ("status", "answer", "said", "is_final"),
    [
        (401, {}, "401", True),
        (404, {}, "404", True),
        (429, {}, "429", False),
        (503, {}, "503", False),
        (200, {}, "no access_token", False),
        (200, [1], "no access_token", False),
    ],
)
def test_what_is_no_token_is_an_error_that_holds_no_secret(
    endpoint: tuple[str, type[Endpoint]], status: int, answer: Any, said: str, is_final: bool
) -> None:
    url, server = endpoint
    server.status, server.answer = status, answer
    with pytest.raises(PermissionError if is_final else NotConnected, match=said) as caught:
        TokenEndpoint(url, "me", "hunter2")()
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(TokenEndpoint(url, "me", "hunter2"))


def test_other_kinds_of_addresses_are_not_opened() -> None:
    with pytest.raises(ValueError, match="no http or https"):
        TokenEndpoint("file:///etc/passwd", "me", "hunter2")()


def test_options_that_name_nobody_make_no_token() -> None:
    assert UnsecuredTokens({"unsecuredLoginStringClaim_sub": "alice"})().endswith(".")
    with pytest.raises(ValueError, match="unsecuredLoginStringClaim_sub"):
        UnsecuredTokens({})()

"""Who asks for the metrics by HTTP, and what keeps that from becoming too much."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import logging
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.config.broker_config import ParsedListener
from kbroker.metrics import listener as listener_module
from kbroker.metrics.listener import MOST_CLIENTS, MetricsListener, Page
from tests.kbroker.metrics.scraping import fetch_text

LOOPBACK = ParsedListener("HTTP", "127.0.0.1", 0)


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsListener]:
    monkeypatch.setattr(listener_module, "gather", lambda sources: [b"a 1\n", b"b 2\n"])
    served = MetricsListener(sources(), [LOOPBACK])
    served.start()
    yield served
    served.close()


def sources() -> Any:
    return SimpleNamespace(collections=None, latest_offsets=None)


def test_it_answers_under_metrics_and_says_where_otherwise(serving: MetricsListener) -> None:
    (url,) = serving.addresses
    assert url.startswith("http://127.0.0.1:")
    assert fetch_text(url) == "a 1\nb 2\n"
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch_text(url.replace("/metrics", "/favicon.ico"))
    with refused.value as answer:
        assert (answer.code, answer.read()) == (404, b"metrics are served at /metrics\n")


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:9404", 200), ("127.0.0.1", 200), ("[::1]:1", 200), ("evil.example", 421), ("a:b:c", 421)],
)
def test_on_loopback_it_answers_who_names_this_machine(serving: MetricsListener, host: str, status: int) -> None:
    place = serving.addresses[0].removeprefix("http://").removesuffix("/metrics")
    with contextlib.closing(http.client.HTTPConnection(place, timeout=20)) as asking:
        asking.request("GET", "/metrics", headers={"Host": host})
        answer = asking.getresponse()
        assert (answer.status, b"a 1" in answer.read()) == (status, status == 200)


def test_it_is_gzipped_for_who_takes_that(serving: MetricsListener) -> None:
    request = urllib.request.Request(serving.addresses[0], headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(answer.read()) == b"a 1\nb 2\n"


def test_a_client_that_speaks_no_http_is_told_so_at_once(serving: MetricsListener) -> None:
    host, port = serving.addresses[0].removeprefix("http://").removesuffix("/metrics").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as kafka_client:
        kafka_client.sendall(b"\x00\x00\x00\x17\x00\x12\x00\x03")
        answer = b""
        while more := kafka_client.recv(1000):
            answer += more
    assert answer.startswith(b"HTTP/1.1 400 ")


def address_of(serving: MetricsListener) -> tuple[str, int]:
    host, port = serving.addresses[0].removeprefix("http://").removesuffix("/metrics").split(":")
    return host, int(port)


def all_that_comes(client: socket.socket) -> bytes:
    """Read until the end of a connection, however it ends."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while more := client.recv(1 << 20):
            found += more
    return found


@pytest.mark.parametrize("places", ["MOST_CLIENTS", "MOST_OF_ADDRESS"])
def test_silent_clients_take_no_more_than_their_places(
    serving: MetricsListener, monkeypatch: pytest.MonkeyPatch, places: str
) -> None:
    monkeypatch.setattr(listener_module, places, 3)
    with contextlib.ExitStack() as open_here:
        silent = [open_here.enter_context(socket.create_connection(address_of(serving), timeout=20)) for _ in range(3)]
        one_more = open_here.enter_context(socket.create_connection(address_of(serving), timeout=20))
        assert all_that_comes(one_more).startswith(b"HTTP/1.1 503 "), "it is turned away at once"
        silent[0].close()
        until_served(serving.addresses[0])


def test_one_address_leaves_places_to_others(serving: MetricsListener) -> None:
    host, port = address_of(serving)
    with contextlib.ExitStack() as open_here:
        for _ in range(MOST_CLIENTS):
            open_here.enter_context(socket.create_connection((host, port), timeout=20))
        elsewhere = socket.create_connection((host, port), timeout=20, source_address=("127.0.0.2", 0))
        open_here.enter_context(elsewhere).sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert all_that_comes(elsewhere).startswith(b"HTTP/1.0 200 ")


def until_served(url: str) -> None:
    """Wait until there is a place."""
    for _ in range(2000):
        with contextlib.suppress(OSError):
            assert fetch_text(url) == "a 1\nb 2\n"
            return
        sleep(0.01)
    raise AssertionError("no place came free")


def test_who_sends_a_byte_now_and_then_is_ended_as_who_sends_none(
    serving: MetricsListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "ASK_S", 0.1)
    with socket.create_connection(address_of(serving), timeout=20) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(400):
                slow.sendall(b"a")
                sleep(0.03)
            raise AssertionError("it is served for as long as it likes")


def test_who_takes_the_answer_slowly_is_ended_though_each_piece_is_taken_in_time(
    serving: MetricsListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [bytes(1 << 18)] * 64
    monkeypatch.setattr(listener_module, "ANSWER_S", 0.1)
    monkeypatch.setattr(listener_module, "gather", lambda sources: pieces)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.settimeout(20)
        slow.connect(address_of(serving))
        slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        found, began = 0, monotonic()
        with contextlib.suppress(ConnectionResetError):
            while more := slow.recv(1 << 14):
                found += len(more)
                if monotonic() < began + 0.2:
                    sleep(0.01)
        assert found < 64 << 18


def test_a_failure_is_answered_and_logged(
    serving: MetricsListener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(sources: Any) -> list[bytes]:
        raise ZeroDivisionError

    monkeypatch.setattr(listener_module, "gather", fail)
    with pytest.raises(urllib.error.HTTPError) as refused:
        fetch_text(serving.addresses[0])
    refused.value.close()
    assert refused.value.code == 500
    assert "could not be gathered" in caplog.text


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        both = MetricsListener(sources(), [LOOPBACK, ParsedListener("HTTP", "127.0.0.1", port)])
        with pytest.raises(OSError, match=f"HTTP://127.0.0.1:{port}: Address already in use; choose another"):
            both.start()
    assert both.addresses == [], "nothing is left listening"


def test_who_serves_beyond_this_machine_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    everywhere = MetricsListener(sources(), [ParsedListener("HTTP", "0.0.0.0", 0)])
    everywhere.start()
    everywhere.close()
    assert "may read the names of all topics" in caplog.text


def test_those_who_ask_at_once_get_the_same_answer() -> None:
    begun, go_on = threading.Event(), threading.Event()
    gathered = []

    def gather() -> list[bytes]:
        begun.set()
        assert go_on.wait(20)
        gathered.append(1)
        return [b"x"]

    page = Page(gather)
    found: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda: found.append(page.pieces())) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(20)
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert found == [[b"x"]] * 3
    assert len(gathered) == 1

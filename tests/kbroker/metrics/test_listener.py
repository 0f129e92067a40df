"""Who asks for the metrics by HTTP, and what keeps that from becoming too much."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
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


def test_silent_clients_take_no_more_than_their_places(serving: MetricsListener) -> None:
    host, port = serving.addresses[0].removeprefix("http://").removesuffix("/metrics").split(":")
    silent = [socket.create_connection((host, int(port)), timeout=20) for _ in range(MOST_CLIENTS)]
    try:
        one_more = socket.create_connection((host, int(port)), timeout=20)
        with one_more:
            assert one_more.recv(1) == b"", "it is turned away at once"
    finally:
        for each in silent:
            each.close()


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

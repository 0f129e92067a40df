import asyncio
import socket
import threading
import urllib.request

import pytest
import uvicorn

from kbroker.page.options import PageOptions
from kbroker.page.server import address_of, listen, server_of


def test_the_page_is_served_where_it_was_told() -> None:
    options = PageOptions("127.0.0.1:1", port=0)
    listener = listen(options)
    server: uvicorn.Server = server_of(options)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        with urllib.request.urlopen(f"{address_of(options, listener)}/static/page.css", timeout=30) as answer:
            assert answer.status == 200
            assert "server" not in answer.headers
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()


def test_an_address_that_is_taken_is_said_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        listen(PageOptions("127.0.0.1:1", port=taken.getsockname()[1]))


def test_the_address_to_open_is_a_browsers() -> None:
    with listen(PageOptions("b:1", port=0)) as listener:
        port = listener.getsockname()[1]
        assert address_of(PageOptions("b:1", "::1"), listener) == f"http://[::1]:{port}"
        tls = PageOptions("b:1", certificate="c", key="k")
        assert address_of(tls, listener) == f"https://127.0.0.1:{port}"

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from kbroker.cluster import host_addresses
from kbroker.cluster.host_addresses import look_up


async def test_a_host_has_addresses_and_what_has_none_says_why() -> None:
    assert "127.0.0.1" in await look_up("localhost")
    for name in ("no.such.host.invalid", "a..b", "nul\0"):
        with pytest.raises(OSError, match=r"."):
            await look_up(name)


async def test_a_host_whose_resolver_hangs_is_waited_for_a_while_and_nobody_elses_thread_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_go = threading.Event()
    resolver = SimpleNamespace(getaddrinfo=lambda *_, **__: let_go.wait(60), SOCK_STREAM=socket.SOCK_STREAM)
    monkeypatch.setattr(host_addresses, "socket", resolver)
    monkeypatch.setattr(host_addresses, "LONGEST_LOOKUP_S", 0.05)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    try:
        with pytest.raises(OSError, match=r"no answer within 0\.05 s"):
            await look_up("slow")
        assert await asyncio.to_thread(lambda: "a password") == "a password"
    finally:
        let_go.set()

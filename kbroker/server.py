"""Listeners: bytes -> frames -> dispatch -> bytes, answers in request order, on bare non-blocking sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Dispatch = Callable[["Connection", memoryview], "list[Any] | None | Awaitable[list[Any] | None]"]
"""(connection, frame without its size) -> parts of the answer, None for no answer, or an awaitable of either. The frame is a
writable memoryview over a pooled buffer: it is the handler's until its answer has been sent (or None was returned)."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One socket to listen on; host "" means every address."""

    name: str
    host: str
    port: int


class Connection:
    """One client's socket. listener, host, port: the peer; principal; client_software_name, client_software_version."""

    __slots__ = ("client_software_name", "client_software_version", "host", "listener", "port", "principal")


class Server:
    """All listeners of a broker. `ports[listener name]` is the port really bound (port 0 picks one)."""

    ports: dict[str, int]

    def __init__(self, dispatch: Dispatch, **limits: Any) -> None:
        raise NotImplementedError

    def bind(self, listeners: list[Listener]) -> None:
        """Bind and listen (connections queue in the kernel); raises OSError naming the address."""

    def start(self) -> None:
        """Begin to accept."""

    async def stop(self, drain_timeout: float = 5.0) -> None:
        """Stop accepting, let requests in work finish, close every connection."""

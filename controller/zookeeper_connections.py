"""How kazoo's connections come about: how long nobody's answer is waited for, TLS, the log-in, and what it may log.

Only this file and `zookeeper` know kazoo. All but the making of these objects runs on kazoo's threads.
"""

from __future__ import annotations

import logging
import secrets
import socket
import ssl
from collections.abc import Callable
from time import monotonic
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol import serialization
from kazoo.protocol.connection import ConnectionDropped, ConnectionHandler
from kazoo.retry import KazooRetry

from kbroker.security.digest_md5 import DigestError, DigestMd5

log = logging.getLogger(__name__)

_LEAST_ATTEMPTS_PER_SESSION = 3
_LEAST_PATIENCE_S = 1.0


def first_patience(session_s: float, servers: int) -> float:
    """Seconds for a server that answers nothing, so that each of the others is asked before the session is over."""
    return max(_LEAST_PATIENCE_S, session_s / max(_LEAST_ATTEMPTS_PER_SESSION, servers))


class Connections(SequentialThreadingHandler):  # type: ignore[misc]
    """Connections of kazoo's that are given up in time for another attempt, encrypted where there is a context.

    A ZooKeeper that is about to serve, or hangs, takes a connection and answers nothing; kazoo would wait for as long
    as the session lasts, and lose it.
    """

    def __init__(self, patience: float, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._least_patience = patience
        self.patience = patience
        """Seconds; doubled when a server that did not answer is asked again, as it may be slow, too."""
        self._silent: set[tuple[str, int]] = set()
        """Who has not answered with the present patience."""
        self._context = context
        self._address = ("", 0)
        self._greeted: socket.socket | None = None
        """What has not answered its first request yet."""
        self._greeting_ends: float | None = None
        self.problem = ""
        """Why there was no TLS the last time."""

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **settings: object
    ) -> socket.socket:
        """Connect, and shake hands."""
        if address in self._silent:
            self.patience *= 2
            self._silent.clear()
        self._address = address
        try:
            connection = socket.create_connection(address, min(timeout, self.patience))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                connection = self._encrypted(connection, hostname)
        except TimeoutError:
            self._silent.add(address)
            raise
        self._greeted = connection
        self._greeting_ends = None
        return connection

    def _encrypted(self, plain: socket.socket, hostname: str) -> socket.socket:
        assert self._context is not None
        try:
            encrypted = self._context.wrap_socket(plain, server_hostname=hostname)
        except OSError as error:
            plain.close()
            self.problem = getattr(error, "verify_message", "") or str(error)
            raise
        self.problem = ""
        return encrypted

    def select(self, readable: list[Any], writable: list[Any], broken: list[Any], timeout: float | None = None) -> Any:
        """What is decrypted already need not come through the socket."""
        pending = [each for each in readable if isinstance(each, ssl.SSLSocket) and each.pending()]
        if pending:
            return pending, [], []
        if self._greeted is not None:
            if readable == [self._greeted]:
                return self._select_greeting(timeout)
            if self._greeting_ends is not None:
                self._take_greeting()
        return super().select(readable, writable, broken, timeout)

    def _select_greeting(self, timeout: float | None) -> Any:
        """Wait for the first answer: what can be read before it may be TLS's own, and is no answer."""
        if self._greeting_ends is None:
            self._greeting_ends = monotonic() + self.patience
        left = max(0.0, self._greeting_ends - monotonic())
        found = super().select([self._greeted], [], [], left if timeout is None else min(left, timeout))
        if not found[0]:
            self._silent.add(self._address)
            self._greeted = None
        return found

    def _take_greeting(self) -> None:
        """The first answer has been read, since kazoo goes on."""
        self._greeted = None
        self._silent.clear()
        self.patience = self._least_patience


class SaslConnection(ConnectionHandler):  # type: ignore[misc]
    """A connection of kazoo's that logs in by DIGEST-MD5; refused, it tries again like one that was lost.

    kazoo is connected before it logs in: who is not let in is told of no connection. Each attempt keeps the session
    alive at the server, though, and what is registered with it: refused for as long as a session lasts, we let it go.
    """

    def __init__(
        self, kazoo: KazooClient, retry: KazooRetry, login: tuple[str, str], tell: Callable[[str], None]
    ) -> None:
        super().__init__(kazoo, retry, logger=kazoo.logger, sasl_options={})
        self.login = login
        """User and password."""
        self._tell = tell
        self._is_let_in = False
        self._was_let_in = False
        """In the present session."""
        self._refused_since: float | None = None
        self.problem = ""
        """Why ZooKeeper did not let us in the last time."""
        self.refusals = 0
        """How often it did not."""

    def state_changed(self, state: str) -> None:
        """Pass on what kazoo tells, but for connections that have not been let in."""
        if state == KazooState.CONNECTED:
            return
        if state == KazooState.SUSPENDED and not self._is_let_in:
            return
        self._is_let_in = False
        self._was_let_in &= state != KazooState.LOST
        self._tell(state)

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        """Before anything else is sent."""
        user, password = self.login
        exchange = DigestMd5(user, password, secrets.token_hex(16), "zookeeper", "zk-sasl-md5")
        try:
            answer = exchange.answer(self._sent(b"", 1, timeout))
            exchange.check(self._sent(answer, 2, timeout))
        except (ConnectionDropped, DigestError, KazooTimeoutError) as error:
            self.problem = f"user {user} is not let in: {error}"
            self.refusals += 1
            log.warning("ZooKeeper at %s: %s", host, self.problem)
            raise (SessionExpiredError if self._ends_session() else ConnectionDropped)(self.problem) from error
        self.problem = ""
        self._refused_since = None
        self._is_let_in = self._was_let_in = True
        self._tell(KazooState.CONNECTED)

    def _ends_session(self) -> bool:
        """Whether we have been refused for as long as the session would have lasted without us."""
        now = monotonic()
        if self._refused_since is None:
            self._refused_since = now
        if not self._was_let_in or now - self._refused_since < self.client._session_timeout / 1000:
            return False
        self._was_let_in = False
        return True

    def _sent(self, token: bytes, number: int, timeout: float) -> bytes:
        self._submit(serialization.SASL(token), timeout, number)
        header, buffer, offset = self._read_header(timeout)
        if header.err:
            raise DigestError(f"error {header.err}")
        return serialization.SASL.deserialize(buffer, offset)[0] or b""


def kazoo_logger() -> logging.Logger:
    """kazoo tells of every attempt to connect; the word that matters is ours. Asked for more, it tells no secrets."""
    logger = logging.getLogger("kazoo")
    logger.addFilter(_without_contents)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    return logger


def _without_contents(record: logging.LogRecord) -> bool:
    """Requests and answers hold passwords, of the session and of users: only their kinds and paths are logged."""
    if isinstance(record.args, tuple):
        record.args = tuple(map(_shown, record.args))
    return True


def _shown(argument: object) -> object:
    if argument is None or isinstance(argument, int | float | str | BaseException):
        return argument
    return f"{type(argument).__name__} {getattr(argument, 'path', '')}".rstrip()

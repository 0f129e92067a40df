"""TLS handshakes of clients that have come in and are no connections yet.

Each is a flight or two of messages. What OpenSSL has to compute for one takes up to a millisecond, and is done in a
thread: a thousand new clients a second do not hold up those that are there. A handshake that takes too many bytes or
too long, or begins with what is no TLS, ends with one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kbroker.network.tls_channel import TlsBuffers, TlsChannel
from kbroker.network.tls_listeners import TlsListener
from kbroker.security.limited_lines import LimitedLines
from kbroker.security.stores import StoreError

log = logging.getLogger(__name__)

LONGEST_S = 30.0
MOST_BYTES = 1 << 17
"""Of what a client sends before its handshake is over: a chain of certificates has some thousands."""
PIECE = 1 << 14
HANDSHAKE_RECORD = 0x16
HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"CONN")


Done = Callable[[TlsChannel, str], None]
Failed = Callable[[bool], None]
"""Whether what the client sent was refused; else it has gone, or the line has."""


class Handshakes:
    """Handshakes that are under way on one server, and take turns in a thread of their own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buffers = TlsBuffers()
        self._thread = ThreadPoolExecutor(1, "tls-handshakes")
        self._running: set[_Handshake] = set()
        self.lines = LimitedLines(log, "failed TLS handshakes")

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._running)

    def begin(self, sock: socket.socket, listener: TlsListener, name: str, done: Done, failed: Failed) -> None:
        """Shake hands; `done` gets the channel and whose certificate was shown, `failed` is called after the line in
        the log. `name` tells in it who it is: address, colon, port and what else there is to say.
        """
        self._running.add(_Handshake(self, sock, listener, name, done, failed))

    def close(self) -> None:
        """End all; neither `done` nor `failed` is called."""
        for each in list(self._running):
            each.end()
        self._thread.shutdown(wait=False, cancel_futures=True)


class _Handshake:
    """READING (waits for the client) or in the thread; its end closes the socket or hands it on."""

    def __init__(
        self,
        all_of_them: Handshakes,
        sock: socket.socket,
        listener: TlsListener,
        name: str,
        done: Done,
        failed: Failed,
    ) -> None:
        self._all = all_of_them
        self._socket = sock
        self._listener = listener
        self._name = name
        self._address = name.rpartition(":")[0]
        self._done = done
        self._failed = failed
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = listener.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._received = 0
        self._unsent = b""
        self._is_over = False
        self._timer = all_of_them._loop.call_later(LONGEST_S, self._fail, f"not over after {LONGEST_S:g} s")
        all_of_them._loop.add_reader(sock.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(PIECE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error.strerror or str(error), is_refusal=False)
            return
        if not data:
            self._fail("the client closed it" if self._received else "", logging.DEBUG, is_refusal=False)
            return
        if not self._received and data[0] != HANDSHAKE_RECORD:
            self._fail(explain_plaintext(data), logging.WARNING)
            return
        self._received += len(data)
        if self._received > MOST_BYTES:
            self._fail(f"more than {MOST_BYTES} bytes, and not over")
            return
        self._incoming.write(data)
        self._all._loop.remove_reader(self._socket.fileno())
        step = self._all._loop.run_in_executor(self._all._thread, self._step)
        step.add_done_callback(self._stepped)

    def _step(self) -> str | None:
        """In the thread: go on with what has come. Returns whose certificate was shown once all is done."""
        if self._is_over:
            return None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return None
        return self._listener.principal(self._tls.getpeercert(binary_form=True))

    def _stepped(self, step: asyncio.Future[str | None]) -> None:
        if self._is_over or step.cancelled():
            return
        error = step.exception()
        try:
            is_sent = self._send()
        except OSError as lost:
            error = error or lost
        if error is not None:
            self._fail(_reason(error), is_refusal=not _is_of_the_line(error))
        elif is_sent:
            self._go_on(step.result())
        else:
            self._all._loop.add_writer(self._socket.fileno(), self._on_writable, step.result())

    def _on_writable(self, principal: str | None) -> None:
        try:
            is_sent = self._send()
        except OSError as lost:
            self._fail(_reason(lost), is_refusal=False)
            return
        if is_sent:
            self._all._loop.remove_writer(self._socket.fileno())
            self._go_on(principal)

    def _go_on(self, principal: str | None) -> None:
        """All is sent: wait for the client's next word, or hand it on."""
        all_of_them = self._all
        if principal is None:
            all_of_them._loop.add_reader(self._socket.fileno(), self._on_readable)
            return
        self._forget()
        channel = TlsChannel(
            self._socket, self._tls, self._incoming, self._outgoing, all_of_them._buffers, all_of_them._loop
        )
        self._done(channel, principal)

    def _send(self) -> bool:
        """Hand over what OpenSSL has to say; False while the socket takes no more: many authorities' names are long."""
        while self._unsent or self._outgoing.pending:
            data = self._unsent or self._outgoing.read(PIECE)
            try:
                self._unsent = data[self._socket.send(data) :]
            except (BlockingIOError, InterruptedError):
                self._unsent = data
                return False
        return True

    def _fail(self, reason: str, level: int = logging.INFO, is_refusal: bool = True) -> None:
        if reason:
            level = level if level == logging.DEBUG else self._all.lines.level(self._address, level)
            log.log(level, "closing the connection from %s: TLS handshake failed: %s", self._name, reason)
        self.end()
        self._failed(is_refusal)

    def _forget(self) -> None:
        self._is_over = True
        self._timer.cancel()
        self._all._running.discard(self)

    def end(self) -> None:
        """Close the socket."""
        self._forget()
        self._all._loop.remove_reader(self._socket.fileno())
        self._all._loop.remove_writer(self._socket.fileno())
        self._socket.close()


def explain_plaintext(data: bytes) -> str:
    """Say in one line what the first bytes are that are no TLS."""
    if data[:4] in HTTP:
        return "it speaks HTTP, but this is a Kafka listener with TLS"
    return "it does not speak TLS, but this listener does: is its security.protocol right?"


def _is_of_the_line(error: BaseException) -> bool:
    return isinstance(error, OSError) and not isinstance(error, ssl.SSLError)


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, OSError | StoreError | ValueError):
        return str(error)
    return repr(error)

"""JSON documents at addresses, read within a limit of time and of size.

Loaded where one is wanted only: urllib brings the library for mail along.
"""

from __future__ import annotations

import io
import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from time import monotonic
from typing import Any

TIMEOUT_S = 10.0
"""Of each step until it is asked, and of its whole answer."""
LARGEST_DOCUMENT = 4 << 20


def fetch(url: str) -> object:
    """Return the JSON document at a file:, http: or https: address; raises OSError, ValueError. Blocks."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return json.loads(Path(urllib.request.url2pathname(parts.path)).read_text(encoding="utf-8"))
    if parts.scheme not in ("http", "https"):
        raise ValueError("only file:, http: and https: addresses are read")
    opener = urllib.request.build_opener(_Http, _Https, _Redirects)
    try:
        with opener.open(url, timeout=TIMEOUT_S) as response:
            data = bytearray()
            while len(data) <= LARGEST_DOCUMENT and (piece := response.read1(LARGEST_DOCUMENT + 1 - len(data))):
                data += piece
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"it answers {error.code} {error.reason}") from None
    except HTTPException as error:
        raise OSError(f"it does not answer in HTTP, or not to the end: {error!r}") from None
    if len(data) > LARGEST_DOCUMENT:
        raise ValueError(f"it has more than {LARGEST_DOCUMENT} bytes")
    return json.loads(data)


class _InTime(io.RawIOBase):
    """What a socket receives within TIMEOUT_S from now: one that receives a byte now and then would never end."""

    def __init__(self, sock: socket.socket, received: io.RawIOBase) -> None:
        self._socket, self._received = sock, received
        self._latest = monotonic() + TIMEOUT_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._socket.settimeout(max(self._latest - monotonic(), 1e-3))
        if monotonic() > self._latest:
            raise TimeoutError(f"it has not answered to the end after {TIMEOUT_S:.0f} s")
        return self._received.readinto(buffer)

    def close(self) -> None:
        self._received.close()
        super().close()


class _Answer(HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_InTime(sock, self.fp.detach()))


class _Connection(HTTPConnection):
    response_class = _Answer


class _SecureConnection(HTTPSConnection):
    response_class = _Answer


class _Http(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Connection, request)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_SecureConnection, request)


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: urllib.request.Request, *answer: Any) -> urllib.request.Request | None:
        """Go on by the same protocol, or by https: what is asked for by https is not taken from who can be anybody."""
        new = answer[-1]
        protocol = urllib.parse.urlsplit(req.full_url).scheme  # its type is the proxy's where there is one
        if urllib.parse.urlsplit(new).scheme not in (protocol, "https"):
            raise OSError(f"it names another address, which is not read by {protocol} or https: {new}")
        return super().redirect_request(req, *answer)

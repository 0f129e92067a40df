"""A TLS server in the test's own event loop, and clients of the standard library that speak to it."""

import asyncio
import dataclasses
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kbroker.network.connection import Connection
from kbroker.network.limits import ServerLimits
from kbroker.network.server import Listener, Server
from kbroker.network.tls_listeners import TlsListener
from kbroker.security.distinguished_names import PrincipalRules
from kbroker.security.security_protocol import SecurityProtocol
from tests.fixtures.certificates import Authority, Identity

Answer = Callable[[Connection, memoryview], Any]


def tls_listener(
    identity: Identity, authority: Authority, *, client_auth: int = ssl.CERT_NONE, rules: str = "DEFAULT"
) -> TlsListener:
    """What a listener with this certificate shakes hands with."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.file)
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.VerifyMode(client_auth)
    return TlsListener(context, PrincipalRules(rules))


@asynccontextmanager
async def tls_serving(
    answer: Answer, listener: TlsListener, limits: ServerLimits | None = None, names: Sequence[str] = ("SSL",)
) -> AsyncIterator[Server]:
    """A server with listeners of these names, and one in clear, PLAIN; `answer` gets the frames."""
    server = Server(answer, limits)
    server.tls = dict.fromkeys(names, listener)
    encrypted = [Listener(name, "127.0.0.1", 0, SecurityProtocol.SSL) for name in names]
    server.bind([*encrypted, Listener("PLAIN", "127.0.0.1", 0)])
    server.start()
    try:
        yield server
    finally:
        await server.stop(drain_timeout=0)


def echo(connection: Connection, frame: memoryview) -> list[bytes]:
    """Answer with what came."""
    return [len(frame).to_bytes(4), bytes(frame)]


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


@dataclasses.dataclass
class TlsClient:
    """Reads and writes frames."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def read(self) -> bytes:
        async with asyncio.timeout(30):
            return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4)))

    async def ask(self, data: bytes) -> bytes:
        self.writer.write(framed(data))
        return await self.read()


@asynccontextmanager
async def tls_client(
    server: Server,
    authority: Authority,
    identity: Identity | None = None,
    versions: tuple[str, str] | None = None,
    listener: str = "SSL",
) -> AsyncIterator[TlsClient]:
    """A client with a certificate or without."""
    context = ssl.create_default_context(cafile=str(authority.file))
    if identity is not None:
        context.load_cert_chain(identity.file)
    if versions is not None:
        context.minimum_version, context.maximum_version = (ssl.TLSVersion[name] for name in versions)
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.ports[listener], ssl=context, server_hostname="localhost"
        )
    try:
        yield TlsClient(reader, writer)
    finally:
        writer.transport.abort()

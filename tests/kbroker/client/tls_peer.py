"""A TLS server that is no broker: it answers ApiVersions and Metadata with nothing in them, or behaves otherwise."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.fixtures.certificates import Authority, Identity
from tests.fixtures.streams import stream_server

VERSIONS = bytes.fromhex("0000 00000001 0003 0000 0009")
"""An ApiVersions answer of version 0: only Metadata, versions 0 to 9."""


def server_context(identity: Identity, authority: Authority, *, asks: bool = False) -> ssl.SSLContext:
    """What a server of this identity shakes hands with; `asks`: only clients with a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.load_cert_chain(identity.file)
    context.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
    return context


@asynccontextmanager
async def tls_peer(context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Run it on loopback; yields its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                answer = frame[4:8] + VERSIONS
                writer.write(len(answer).to_bytes(4) + answer)
        writer.close()

    async with stream_server(serve, context) as port:
        yield port

"""ZooKeeper behind TLS: something that decrypts stands before the real one."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest

from kbroker.config.broker_config import read_broker_config
from kbroker.config.shares import zookeeper_access
from kbroker.controller.znode_access import ZooKeeperAccess
from kbroker.controller.znode_operations import ZooKeeperUnreachable
from kbroker.controller.zookeeper import ZooKeeper
from tests.fixtures.certificates import Authority, Identity
from tests.fixtures.streams import stream_server
from tests.fixtures.zookeeper import ZooKeeperAddress


@contextlib.asynccontextmanager
async def encrypted(zookeeper: ZooKeeperAddress, identity: Identity, authority: Authority) -> AsyncIterator[str]:
    """Yields the connect string; whoever shows no certificate is not let in."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.load_cert_chain(identity.file)
    context.verify_mode = ssl.CERT_REQUIRED
    servers, _, chroot = zookeeper.connect_string.partition("/")
    host, _, port = servers.partition(",")[0].rpartition(":")

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.TaskGroup() as copies:
                copies.create_task(copy(reader, back))
                copies.create_task(copy(there, writer))
        except* OSError:
            pass
        finally:
            for each in (writer, back):
                each.transport.abort()
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    async with stream_server(relay, context) as listening:
        yield f"127.0.0.1:{listening}/{chroot}"


def access_for(identity: Identity, authority: Authority, **more: str) -> ZooKeeperAccess:
    properties = {
        "broker.id": "1",
        "zookeeper.connect": "127.0.0.1:2181",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(identity.file),
        "zookeeper.ssl.truststore.location": str(authority.file),
        **more,
    }
    return zookeeper_access(read_broker_config(properties))


@pytest.mark.slow
async def test_a_session_lives_over_tls_and_reads_what_comes_together(
    zookeeper: ZooKeeperAddress, authority: Authority, broker_identity: Identity, client_identity: Identity
) -> None:
    async with encrypted(zookeeper, broker_identity, authority) as connect:
        session = ZooKeeper(connect, 10_000, 20_000, access=access_for(client_identity, authority))
        await session.connect()
        try:
            for path, size in (("/small", 10), ("/large", 100_000)):
                await session.create(path, b"x" * size)
                async with asyncio.timeout(30):  # many small answers come in one record of TLS
                    found = await asyncio.gather(*(session.get(path) for _ in range(500)))
                assert all(data == b"x" * size for data, _ in found)
        finally:
            await session.close()


async def test_a_zookeeper_that_is_not_trusted_is_told(
    zookeeper: ZooKeeperAddress, authority: Authority, client_identity: Identity
) -> None:
    elsewhere = authority.issue("zookeeper elsewhere", names=["elsewhere.example"])
    async with encrypted(zookeeper, elsewhere, authority) as connect:
        session = ZooKeeper(connect, 10_000, 500, access=access_for(client_identity, authority))
        with pytest.raises(ZooKeeperUnreachable, match=r"no TLS with ZooKeeper at .* mismatch"):
            await session.connect()
        unnamed = {"zookeeper.ssl.endpoint.identification.algorithm": ""}
        session = ZooKeeper(connect, 10_000, 20_000, access=access_for(client_identity, authority, **unnamed))
        await session.connect()
        await session.close()

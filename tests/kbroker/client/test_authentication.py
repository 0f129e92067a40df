"""Before there are logins: nothing is asked of a client whose settings want none."""

import asyncio

from kbroker.client.connection import Connection


async def test_without_a_login_nothing_is_sent_before_the_first_request() -> None:
    got = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.set_result(await reader.read())
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        connection = await Connection.open(*server.sockets[0].getsockname())
        await connection.close()
        async with asyncio.timeout(20):
            assert await got == b""

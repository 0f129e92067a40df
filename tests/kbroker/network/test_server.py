"""The server with a stub in dispatch's place: frames in, answers out, and bad input."""

import asyncio
import os
import resource
import select
import socket
import struct
from typing import Any

import pytest

from kbroker.handlers.context import RequestContext
from kbroker.handlers.registry import CloseConnection
from kbroker.network.connection import Connection
from kbroker.network.dispatch import PENDING, LateAnswer
from kbroker.network.limits import MOST_LATE_ANSWERS, ServerLimits
from kbroker.network.server import Listener, Server, bound
from tests.kbroker.network.serving import Client, connected, echo, frame, serving, until


async def test_a_frame_is_answered() -> None:
    async with serving() as server, connected(server) as client:
        client.send(frame(b"hello"))
        assert await client.receive() == b"hello"


async def test_an_empty_frame_reaches_dispatch() -> None:
    async with serving() as server, connected(server) as client:
        client.send(frame(b""))
        assert await client.receive() == b""


async def test_many_frames_in_one_packet_are_answered_in_order() -> None:
    async with serving() as server, connected(server) as client:
        client.send(b"".join(frame(b"%d" % n) for n in range(2000)))
        assert [int(await client.receive()) for _ in range(2000)] == list(range(2000))


async def test_a_frame_may_arrive_byte_by_byte() -> None:
    async with serving() as server, connected(server) as client:
        for byte in frame(b"slow") + frame(b"slower"):
            client.send(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0.001)
        assert await client.receive() == b"slow"
        assert await client.receive() == b"slower"


@pytest.mark.parametrize("size", [16379, 16380, 16381, 65536, 1 << 20, (1 << 20) + 1, 5_000_000])
async def test_a_frame_of_any_size_arrives_whole(size: int) -> None:
    body = bytes(2) + os.urandom(size - 2)
    async with serving() as server, connected(server) as client:
        for _ in range(2):
            client.send(frame(body))
            assert await client.receive() == body
        client.send(frame(b"next"))
        assert await client.receive() == b"next"


async def test_answers_keep_the_order_of_the_requests_when_an_early_one_takes_longer() -> None:
    held: list[Connection] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        if bytes(request) == b"wait":
            held.append(connection)
            return PENDING
        return echo(connection, request)

    async with serving(dispatch) as server, connected(server) as client:
        client.send(frame(b"first") + frame(b"wait") + frame(b"third"))
        assert await client.receive() == b"first"
        client.send(frame(b"fourth" * 5000))
        assert not await client.is_closed(0.05)
        held[0].answer([frame(b"second")])
        assert await client.receive() == b"second"
        assert await client.receive() == b"third"
        assert await client.receive() == b"fourth" * 5000


async def test_a_request_without_an_answer_lets_the_next_one_through() -> None:
    def dispatch(connection: Connection, request: memoryview) -> Any:
        return None if bytes(request) == b"acks=0" else echo(connection, request)

    async with serving(dispatch) as server, connected(server) as client:
        client.send(frame(b"acks=0") * 3 + frame(b"acks=1"))
        assert await client.receive() == b"acks=1"


async def test_a_slice_of_a_frame_that_somebody_keeps_is_never_overwritten() -> None:
    kept: list[memoryview] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        kept.append(request[1:])
        return [frame(b"")]

    async with serving(dispatch) as server, connected(server) as client:
        bodies = [bytes([n]) * size for n, size in enumerate([10, 40_000, 10, 40_000, 10, 40_000, 20])]
        for body in bodies:
            client.send(frame(body))
            await client.receive()
        assert [bytes(view) for view in kept] == [body[1:] for body in bodies]


async def test_the_buffer_of_a_large_frame_is_used_again() -> None:
    seen: list[int] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        seen.append(id(request.obj))
        return [frame(b"")]

    async with serving(dispatch) as server, connected(server) as client:
        for _ in range(5):
            client.send(frame(bytes(100_000)))
            await client.receive()
    assert len(set(seen)) == 1


class FilePart:
    """What segment's FileRecords is to the server."""

    def __init__(self, file: Any, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def fileno(self) -> int:
        return int(self.file.fileno())

    def read(self) -> bytes:
        return os.pread(self.fileno(), self.size, self.position)


async def test_slices_of_files_go_out_between_the_other_parts(tmp_path: Any) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "log").write_bytes(data)
    with (tmp_path / "log").open("rb") as file:

        def dispatch(connection: Connection, request: memoryview) -> Any:
            large = FilePart(file, 1000, 2_000_000)
            small = FilePart(file, 2_500_000, 100)
            size = 3 + large.size + 2 + small.size + small.size
            return [struct.pack(">i", size) + b"abc", large, b"de", small, small]

        async with serving(dispatch) as server, connected(server) as client:
            for _ in range(3):
                client.send(frame(b"fetch"))
                answer = await client.receive()
                assert answer == b"abc" + data[1000:2_001_000] + b"de" + data[2_500_000:2_500_100] * 2


async def test_a_slow_reader_does_not_hold_up_others_and_is_not_read_from() -> None:
    served: list[bytes] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        served.append(bytes(request))
        return [frame(bytes(8_000_000))] if bytes(request) == b"big" else echo(connection, request)

    async with serving(dispatch) as server:
        slow = socket.create_connection(("127.0.0.1", server.ports["PLAINTEXT"]))
        with slow:
            slow.sendall(frame(b"big") * 10)
            await until(lambda: len(served) == 1)
            async with connected(server) as client:
                for _ in range(20):
                    client.send(frame(b"small"))
                    assert await client.receive() == b"small"
            assert served.count(b"big") == 1


async def test_half_a_frame_then_silence_ends_by_the_idle_limit() -> None:
    async with serving(max_idle_ms=150) as server, connected(server) as client:
        client.send(struct.pack(">i", 1000) + b"half")
        assert await client.is_closed()


async def test_a_connection_that_says_nothing_is_closed_when_idle() -> None:
    async with serving(max_idle_ms=150) as server, connected(server) as client:
        assert await client.is_closed()


async def test_a_connection_that_waits_for_its_answer_is_not_idle() -> None:
    held: list[Connection] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        held.append(connection)
        return PENDING

    async with serving(dispatch, max_idle_ms=100) as server, connected(server) as client:
        client.send(frame(b"wait"))
        assert not await client.is_closed(0.4)
        held[0].answer([frame(b"done")])
        assert await client.receive() == b"done"


async def test_garbage_that_dispatch_refuses_closes_only_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    def dispatch(connection: Connection, request: memoryview) -> Any:
        if bytes(request) == b"garbage":
            raise CloseConnection("it sent garbage")
        return echo(connection, request)

    async with serving(dispatch) as server, connected(server) as good, connected(server) as bad:
        bad.send(frame(b"garbage") + frame(b"more"))
        assert await bad.is_closed()
        good.send(frame(b"fine"))
        assert await good.receive() == b"fine"
        assert [r.getMessage() for r in caplog.records if "it sent garbage" in r.getMessage()]


@pytest.mark.slow
async def test_a_thousand_connections_are_served_at_once() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    async with serving() as server:
        clients = []
        for _ in range(1000):
            sock = socket.socket()
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.ports["PLAINTEXT"]))
            clients.append(sock)
        await until(lambda: len(server.connections) == 1000)
        loop = asyncio.get_running_loop()
        for number, sock in enumerate(clients):
            await loop.sock_sendall(sock, frame(b"%06d" % number))
        for number, sock in enumerate(clients):
            assert await asyncio.wait_for(loop.sock_recv(sock, 100), 20) == frame(b"%06d" % number)
        for sock in clients:
            sock.close()
        await until(lambda: not server.connections)


async def test_a_port_in_use_is_named_in_the_error() -> None:
    async with serving() as server:
        other = Server(echo)
        with pytest.raises(OSError, match=r"PLAINTEXT://127\.0\.0\.1:\d+: the port is in use"):
            other.bind([Listener("PLAINTEXT", "127.0.0.1", server.ports["PLAINTEXT"])])


async def test_a_blank_host_listens_on_every_address() -> None:
    server = Server(echo)
    server.bind([Listener("A", "", 0), Listener("B", "127.0.0.1", 0)])
    server.start()
    try:
        for port in (server.ports["A"], server.ports["B"]):
            client = Client(*await asyncio.open_connection("127.0.0.1", port))
            client.send(frame(b"x"))
            assert await client.receive() == b"x"
            await client.close()
        assert {c.host for c in server.connections} <= {"127.0.0.1"}
    finally:
        await server.stop()


async def test_stop_lets_the_request_in_work_finish() -> None:
    held: list[Connection] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        held.append(connection)
        return PENDING

    async with serving(dispatch) as server, connected(server) as client, connected(server) as idle:
        client.send(frame(b"work"))
        await until(lambda: len(held) == 1)
        stopping = asyncio.create_task(server.stop(drain_timeout=20))
        assert await idle.is_closed()
        held[0].answer([frame(b"finished")])
        assert await client.receive() == b"finished"
        assert await client.is_closed()
        await asyncio.wait_for(stopping, 20)


PRODUCE, METADATA, END_TXN = b"\0\0", b"\0\3", b"\0\x1a"


class LateServer:
    """Answers Produce and EndTxn frames late, everything else at once; notes the order in which frames came in."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.late: list[tuple[Connection, LateAnswer, bytes]] = []

    def __call__(self, connection: Connection, request: memoryview) -> Any:
        body = bytes(request)
        self.seen.append(body)
        if body[:2] not in (PRODUCE, END_TXN):
            return [frame(body)]
        late = LateAnswer()
        self.late.append((connection, late, body))
        return late

    def finish(self, *places: int) -> None:
        """Give these late answers, in this order."""
        for place in places:
            connection, late, body = self.late[place]
            connection.answer_late(late, [frame(body)])


async def test_produce_requests_are_appended_while_others_wait_and_answered_in_order() -> None:
    dispatch = LateServer()
    bodies = [PRODUCE + b"%d" % number for number in range(4)]
    async with serving(dispatch) as server, connected(server) as client:
        client.send(b"".join(frame(body) for body in bodies))
        await until(lambda: dispatch.seen == bodies)
        dispatch.finish(2, 0, 3, 1)
        assert [await client.receive() for _ in bodies] == bodies


async def test_other_requests_wait_until_the_late_answers_are_out() -> None:
    dispatch = LateServer()
    async with serving(dispatch) as server, connected(server) as client:
        client.send(frame(PRODUCE + b"1") + frame(METADATA) + frame(PRODUCE + b"2"))
        await until(lambda: len(dispatch.seen) == 1)
        await asyncio.sleep(0.05)
        assert dispatch.seen == [PRODUCE + b"1"]
        dispatch.finish(0)
        await until(lambda: len(dispatch.late) == 2)
        dispatch.finish(1)
        assert [await client.receive() for _ in range(3)] == [PRODUCE + b"1", METADATA, PRODUCE + b"2"]


@pytest.mark.parametrize(("first", "other"), [(END_TXN, PRODUCE), (PRODUCE, END_TXN)])
async def test_what_is_late_is_overtaken_by_its_like_only(first: bytes, other: bytes) -> None:
    dispatch = LateServer()
    bodies = [first + b"1", first + b"2", other + b"3", other + b"4", first + b"5"]
    async with serving(dispatch) as server, connected(server) as client:
        client.send(b"".join(frame(body) for body in bodies))
        for count, answered in ((2, (1, 0)), (4, (3, 2)), (5, (4,))):
            await until(lambda: len(dispatch.seen) == count)  # noqa: B023
            await asyncio.sleep(0.05)
            assert dispatch.seen == bodies[:count]
            dispatch.finish(*answered)
        assert [await client.receive() for _ in bodies] == bodies


async def test_a_request_that_only_waits_after_a_while_lets_its_like_come_before_its_answer() -> None:
    seen: list[bytes] = []
    asked: list[RequestContext] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        seen.append(bytes(request))
        if request[:2] == METADATA:
            return [frame(bytes(request))]
        asked.append(RequestContext(0, 0, len(asked), None, 0, connection))
        return PENDING

    def answer(number: int) -> None:
        assert asked[number].late is not None
        asked[number].connection.answer_late(asked[number].late, [frame(bodies[number])])

    bodies = [PRODUCE + b"1", PRODUCE + bytes(100_000), PRODUCE + b"3", METADATA]
    async with serving(dispatch) as server, connected(server) as client:
        client.send(b"".join(frame(body) for body in bodies))
        for count in (1, 2, 3):
            await until(lambda: len(seen) == count)  # noqa: B023
            await asyncio.sleep(0)
            assert seen == bodies[:count]
            asked[-1].let_overtake()
        await asyncio.sleep(0.02)
        assert seen == bodies[:3]
        answer(1)
        answer(2)
        assert seen == bodies[:3]
        answer(0)
        assert [await client.receive() for _ in bodies] == bodies


async def test_a_request_whose_client_has_gone_lets_nothing_come() -> None:
    asked: list[RequestContext] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        asked.append(RequestContext(0, 0, 1, None, 0, connection))
        return PENDING

    async with serving(dispatch) as server, connected(server) as client:
        client.send(frame(PRODUCE + b"1") + frame(PRODUCE + b"2"))
        await until(lambda: len(asked) == 1)
        asked[0].connection.close("a test")
        asked[0].let_overtake()
        assert await client.is_closed()
        assert (len(asked), asked[0].late) == (1, None)


@pytest.mark.parametrize("is_late", [True, False])
async def test_who_is_muted_is_not_read_though_its_oldest_answer_is_late(is_late: bool) -> None:
    late: list[LateAnswer] = []
    was_muted: list[bool] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        was_muted.append(connection._muting is not None and connection._muting.is_on())
        if len(was_muted) == 2:
            connection.mute(0.1)
            if not is_late:
                return [frame(b"refused")]
        late.append(LateAnswer())
        return late[-1]

    async with serving(dispatch) as server, connected(server) as client:
        client.send(frame(PRODUCE) * 4)
        await until(lambda: len(was_muted) == 4)
        assert not any(was_muted)
        (connection,) = server.connections
        for each in late:
            connection.answer_late(each, [frame(b"done")])
        assert [await client.receive() for _ in range(4)] == [
            b"done",
            b"done" if is_late else b"refused",
            *[b"done"] * 2,
        ]


async def test_large_frames_may_wait_for_late_answers_too() -> None:
    dispatch = LateServer()
    bodies = [kind + bytes(100_000) for kind in (PRODUCE, METADATA, PRODUCE, METADATA)]
    async with serving(dispatch) as server, connected(server) as client:
        client.send(b"".join(frame(body) for body in bodies))
        await until(lambda: len(dispatch.late) == 1)
        dispatch.finish(0)
        await until(lambda: len(dispatch.late) == 2)
        dispatch.finish(1)
        assert [await client.receive() for _ in bodies] == bodies


async def test_only_so_many_answers_are_late_at_once() -> None:
    dispatch = LateServer()
    bodies = [PRODUCE + b"%d" % number for number in range(MOST_LATE_ANSWERS + 3)]
    async with serving(dispatch) as server, connected(server) as client:
        client.send(b"".join(frame(body) for body in bodies))
        await until(lambda: len(dispatch.seen) == MOST_LATE_ANSWERS)
        await asyncio.sleep(0.05)
        assert len(dispatch.seen) == MOST_LATE_ANSWERS
        dispatch.finish(*range(MOST_LATE_ANSWERS))
        await until(lambda: len(dispatch.seen) == len(bodies))
        dispatch.finish(*range(MOST_LATE_ANSWERS, len(bodies)))
        assert [await client.receive() for _ in bodies] == bodies


async def test_a_connection_with_late_answers_is_not_idle_and_may_end_before_they_come() -> None:
    dispatch = LateServer()
    async with serving(dispatch, max_idle_ms=100) as server:
        async with connected(server) as client:
            client.send(frame(PRODUCE) + frame(PRODUCE))
            assert not await client.is_closed(0.4)
        await until(lambda: not server.connections)
        dispatch.finish(0, 1)


async def test_large_frames_of_changing_sizes_arrive_whole() -> None:
    sizes = (50_000, 20_000, 3, 90_000, 16_384, 1, 2_000_000, 70_000)
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    async with serving() as server, connected(server) as client:
        client.send(b"".join(frame(body) for body in bodies * 3))
        assert [await client.receive() for _ in bodies * 3] == bodies * 3


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no sockets for IPv6 and IPv4 here")
@pytest.mark.parametrize(("host", "takes"), [("", True), ("::", True), ("0:0::0", True), ("::1", False)])
def test_every_address_means_those_of_ipv4_too(host: str, takes: bool) -> None:
    """As for Java: `[::]` in Kafka's listeners takes clients of both."""
    with bound(Listener("A", host, 0), ServerLimits()) as sock, socket.socket() as client:
        # Where it takes none of IPv4, that port of IPv4 may be somebody else's: only who comes here tells.
        client.connect_ex(("127.0.0.1", sock.getsockname()[1]))
        readable, _, _ = select.select([sock], [], [], 10 if takes else 0)
        assert bool(readable) == takes

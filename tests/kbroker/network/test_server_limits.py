"""What a server takes from its clients: sizes, connections, memory, time of the event loop."""

import asyncio
import contextlib
import logging
import os
import resource
import socket
import struct
import time
from typing import Any

import pytest

from kbroker.network.connection import Connection
from kbroker.network.dispatch import PENDING, LateAnswer
from kbroker.network.limits import LARGE_FRAME, ServerLimits
from kbroker.network.server import CLOSED_EACH, CLOSED_PER_TURN, most_descriptors
from tests.kbroker.network.serving import Client, connected, frame, serving, until

PRODUCE = b"\0\0"


@pytest.mark.parametrize(
    ("first_bytes", "said"),
    [
        (struct.pack(">i", 1_000_001), "1000001 bytes, more than socket.request.max.bytes=1000000"),
        (struct.pack(">i", -1), "negative size -1"),
        (struct.pack(">i", -(1 << 31)), "negative size"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "speaks TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "speaks HTTP"),
    ],
)
async def test_a_frame_size_out_of_bounds_ends_the_connection_with_one_line(
    first_bytes: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(request_max_bytes=1_000_000) as server, connected(server) as client:
        client.send(first_bytes)
        assert await client.is_closed()
        lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(lines) == 1
        assert said in lines[0]
        assert "127.0.0.1:" in lines[0]


async def test_strangers_whose_connections_are_refused_or_closed_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    garbage = struct.pack(">i", -1)
    with caplog.at_level(logging.INFO):
        async with serving(max_connections_per_ip=1) as server:
            for _ in range(CLOSED_EACH + 20):
                async with connected(server) as client:
                    client.send(garbage)
                    assert await client.is_closed()
            async with connected(server):
                await until(lambda: len(server.connections) == 1)
                for _ in range(12):
                    async with connected(server) as other:
                        assert await other.is_closed()
            server._closed.tell()
            server._refused.tell()
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    closed = sum("negative size -1" in line for line in said)
    refused = sum("refusing a connection" in line for line in said)
    told = [int(line.split()[0]) for line in said if "more closed" in line or "more refused" in line]
    assert closed <= CLOSED_EACH + 20
    assert 1 <= refused < 12 or len(told) > 2, "a new period may have begun"
    assert closed + refused + sum(told) >= CLOSED_EACH + 20 + 12
    assert told


LIMITS_BY_API: dict[str, Any] = {"request_max_bytes": 5_000_000, "small_request_max_bytes": 100_000}


@pytest.mark.parametrize("first_bytes", [4, 5, 6, 300])
async def test_only_requests_that_hold_records_or_come_from_brokers_may_be_large(
    first_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    produce, metadata = (frame(struct.pack(">hh", key, 1) + bytes(1_000_000)) for key in (0, 3))
    async with serving(**LIMITS_BY_API) as server:
        async with connected(server) as client:
            for _ in range(2):
                client.send(produce[:first_bytes])
                await client.writer.drain()
                await asyncio.sleep(0.02)
                client.send(produce[first_bytes:])
                assert len(await client.receive()) == 1_000_004
            client.send(metadata[:first_bytes])
            await asyncio.sleep(0.02)
            client.send(metadata[first_bytes : first_bytes + 10])
            assert await client.is_closed()
        assert "a request of 1000004 bytes, Metadata: more than kbroker.small.request.max.bytes=100000" in caplog.text
        async with connected(server) as client:
            client.send(frame(struct.pack(">hh", 3, 1) + bytes(99_996)))
            assert len(await client.receive()) == 100_000


async def test_large_orders_for_brokers_are_refused_on_the_clients_listener() -> None:
    order = frame(struct.pack(">hh", 6, 1) + bytes(1_000_000))
    async with serving(**LIMITS_BY_API, broker_listeners=frozenset({"BROKERS"})) as server:
        async with connected(server) as client:
            client.send(order)
            assert await client.is_closed()
        async with connected(server, "BROKERS") as broker:
            broker.send(order)
            assert len(await broker.receive()) == 1_000_004


@pytest.mark.slow
@pytest.mark.parametrize("floods", [1, 20])
async def test_buffers_full_of_small_frames_do_not_hold_up_another_client(floods: int) -> None:
    served: list[bytes] = []
    other: Client

    def slow(connection: Connection, request: memoryview) -> list[bytes]:
        served.append(bytes(request))
        if len(served) == 50:
            other.send(frame(b"other"))
        time.sleep(0.001)
        return [frame(bytes(request))]

    async with serving(slow) as server, contextlib.AsyncExitStack() as stack:
        other = await stack.enter_async_context(connected(server))
        clients = [await stack.enter_async_context(connected(server)) for _ in range(floods)]
        for client in clients:
            client.send(frame(b"flood") * (1000 // floods))
        assert await other.receive() == b"other"
        assert served.index(b"other") < 150
        for client in clients:
            for _ in range(1000 // floods):
                assert await client.receive() == b"flood"


@pytest.mark.parametrize("key", [b"\0\0", b"\0\3"], ids=["Produce", "Metadata"])
async def test_large_frames_of_many_clients_are_served_in_turns(key: bytes) -> None:
    served: list[bytes] = []
    other: Client

    def slow(connection: Connection, request: memoryview) -> list[bytes]:
        served.append(bytes(request[:6]))
        if len(served) == 2:
            other.send(frame(key + b"other"))
        if len(request) > 100:
            time.sleep(0.01)
        return [frame(bytes(request[:6]))]

    async with serving(slow) as server, contextlib.AsyncExitStack() as stack:
        other = await stack.enter_async_context(connected(server))
        clients = [await stack.enter_async_context(connected(server)) for _ in range(20)]
        for _ in range(2):
            served.clear()
            for client in clients:
                client.send(frame(key + b"long" + bytes(100_000)))
            assert await other.receive() == key + b"othe"
            assert served.index(key + b"othe") < 10
            for client in clients:
                assert await client.receive() == key + b"long"


async def test_an_announced_huge_frame_takes_no_memory_before_its_bytes_arrive() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    async with serving() as server:
        before = resident()
        clients = [socket.create_connection(("127.0.0.1", server.ports["PLAINTEXT"])) for _ in range(20)]
        for client in clients:
            client.sendall(struct.pack(">ih", 100_000_000, 0) + b"start")
        await until(lambda: sum(c._frame is not None for c in server.connections) == 20)
        assert resident() - before < 20_000_000
        for client in clients:
            client.close()
        await until(lambda: not server.connections)


async def test_connections_beyond_the_limit_of_an_address_are_closed() -> None:
    async with serving(max_connections_per_ip=2) as server:
        async with connected(server), connected(server) as second:
            await until(lambda: len(server.connections) == 2)
            async with connected(server) as third:
                assert await third.is_closed()
            second.send(frame(b"still here"))
            assert await second.receive() == b"still here"
        await until(lambda: not server.connections)
        async with connected(server) as later:
            later.send(frame(b"room again"))
            assert await later.receive() == b"room again"


async def test_an_override_beats_the_limit_per_address() -> None:
    async with serving(max_connections_per_ip=0, per_ip_overrides={"127.0.0.1": 1}) as server:
        async with connected(server) as first, connected(server) as second:
            first.send(frame(b"a"))
            assert await first.receive() == b"a"
            assert await second.is_closed()


async def test_connections_beyond_max_connections_wait_for_a_place() -> None:
    async with serving(max_connections=1) as server:
        async with connected(server) as first:
            await until(lambda: len(server.connections) == 1)
            async with connected(server) as second:
                second.send(frame(b"patience"))
                assert not await second.is_closed(0.1)
                first.send(frame(b"bye"))
                await first.receive()
                await first.close()
                assert await second.receive() == b"patience"


async def test_a_broker_takes_the_place_of_the_client_that_was_silent_for_longest() -> None:
    async with (
        serving(max_connections=2, privileged_listener="BROKERS") as server,
        contextlib.AsyncExitStack() as stack,
    ):
        clients = []
        for _ in range(2):
            clients.append(await stack.enter_async_context(connected(server)))
            clients[-1].send(frame(b"hello"))
            await clients[-1].receive()
        clients[0].send(frame(b"again"))
        await clients[0].receive()
        broker = await stack.enter_async_context(connected(server, "BROKERS"))
        broker.send(frame(b"peer"))
        assert await broker.receive() == b"peer"
        assert await clients[1].is_closed()
        clients[0].send(frame(b"still"))
        assert await clients[0].receive() == b"still"


async def test_a_reserve_of_descriptors_is_left_to_the_logs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kbroker.network.server.ACCEPT_PAUSE_S", 0.05)
    # Free numbers between those in use would let more, or fewer, connections in than counted on: they are taken first.
    highest = max(int(name) for name in os.listdir("/dev/fd"))
    fillers: list[int] = []
    while not fillers or fillers[-1] < highest:
        fillers.append(os.dup(0))
    monkeypatch.setattr("kbroker.network.server.most_descriptors", lambda: fillers[-1] + 30)
    async with serving(privileged_listener="BROKERS") as server, contextlib.AsyncExitStack() as stack:
        for filler in fillers:
            stack.callback(os.close, filler)
        clients = [await stack.enter_async_context(connected(server)) for _ in range(40)]
        await until(lambda: "the rest is for the logs" in caplog.text)
        assert 0 < len(server.connections) < 30
        # Told when it begins, not at each of the tries: files that others close meanwhile let it begin again.
        assert len([line for line in caplog.messages if "cannot accept" in line]) < 10
        broker = await stack.enter_async_context(connected(server, "BROKERS"))
        broker.send(frame(b"peer"))
        assert await broker.receive() == b"peer"
        for client in clients[:20]:
            await client.close()
        late = await stack.enter_async_context(connected(server))
        late.send(frame(b"late"))
        assert await late.receive() == b"late"


def test_the_reserve_grows_with_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, most in ((256, 192), (1024, 896), (1 << 20, (1 << 20) - 4096)):
        monkeypatch.setattr("resource.getrlimit", lambda _, limit=limit: (limit, limit))
        assert most_descriptors() == most


@pytest.mark.slow
async def test_connections_beyond_the_rate_wait() -> None:
    async with serving(max_creation_rate=2, rate_samples=2) as server:
        begun = asyncio.get_running_loop().time()
        clients = [socket.create_connection(("127.0.0.1", server.ports["PLAINTEXT"])) for _ in range(7)]
        await until(lambda: len(server.connections) == 7)
        assert asyncio.get_running_loop().time() - begun > 1.5
        for client in clients:
            client.close()


async def test_a_higher_limit_lets_in_who_waits_and_a_lower_one_ends_the_most_silent() -> None:
    async with serving(max_connections=1) as server:
        async with connected(server) as first, connected(server) as second:
            first.send(frame(b"a"))
            assert await first.receive() == b"a"
            second.send(frame(b"b"))
            server.change_limits(ServerLimits(max_connections=2))
            assert await second.receive() == b"b"
            server.change_limits(ServerLimits(max_connections=1))
            assert await first.is_closed()
            second.send(frame(b"c"))
            assert await second.receive() == b"c"


@pytest.mark.slow
async def test_a_much_lower_limit_ends_the_most_silent_ones_in_turns() -> None:
    async with serving(max_connections=1000) as server:
        address = ("127.0.0.1", server.ports["PLAINTEXT"])
        clients = []
        for count in range(1, 251):
            clients.append(socket.create_connection(address))
            await until(lambda: len(server.connections) == count)  # noqa: B023
        *_, busy = server.connections
        busy.last_active += 1
        server.change_limits(ServerLimits(max_connections=1))
        assert len(server.connections) == 250 - CLOSED_PER_TURN
        await until(lambda: len(server.connections) == 1)
        assert list(server.connections) == [busy]
        for client in clients:
            client.close()


@pytest.mark.slow
async def test_who_connects_too_often_is_held_unserved_and_then_closed() -> None:
    rates = {"127.0.0.1": 1.0}
    async with serving(ip_rates=rates, rate_samples=2) as server, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server)) for _ in range(100)]

        async def is_served(client: Client) -> bool:
            client.send(frame(b"hello"))
            try:
                return await client.receive() == b"hello"
            except (asyncio.IncompleteReadError, ConnectionError):
                return False

        served = await asyncio.gather(*map(is_served, clients))
        assert 1 <= sum(served) < 60
        await until(lambda: not server._held)
        rates.clear()
        later = await stack.enter_async_context(connected(server))
        assert await is_served(later)


async def test_no_frame_is_read_while_the_requests_in_work_hold_all_memory() -> None:
    held: list[Connection] = []

    def dispatch(connection: Connection, request: memoryview) -> Any:
        held.append(connection)
        return PENDING

    async with serving(dispatch, queued_max_bytes=100_000) as server:
        async with connected(server) as first, connected(server) as second, connected(server) as third:
            first.send(frame(bytes(200_000)))
            await until(lambda: len(held) == 1)
            second.send(frame(bytes(50_000)))
            third.send(frame(b"tiny"))
            await asyncio.sleep(0.1)
            assert len(held) == 1
            assert server.bytes_in_flight == 200_000
            held[0].answer([frame(b"one")])
            await until(lambda: len(held) == 3)
            for connection in held[1:]:
                connection.answer([frame(b"done")])
            assert await second.receive() == b"done"
            assert await third.receive() == b"done"
            await until(lambda: server.bytes_in_flight == 0)


class Late:
    """Answers Produce late and holds everything else."""

    def __init__(self) -> None:
        self.late: list[tuple[Connection, LateAnswer]] = []
        self.held: list[Connection] = []

    def __call__(self, connection: Connection, request: memoryview) -> Any:
        if request[:2] != PRODUCE:
            self.held.append(connection)
            return PENDING
        late = LateAnswer()
        self.late.append((connection, late))
        return late

    def finish(self, place: int) -> None:
        connection, late = self.late[place]
        connection.answer_late(late, [frame(b"%d" % place)])


async def test_a_frame_that_is_still_coming_counts_on_when_an_answer_before_it_goes_out() -> None:
    dispatch, large = Late(), frame(PRODUCE + bytes(300_000))
    async with serving(dispatch, queued_max_bytes=1_000) as server, connected(server) as client:
        client.send(frame(PRODUCE))
        await until(lambda: len(dispatch.late) == 1)
        client.send(large[:200_000])
        await until(lambda: server.bytes_in_flight > 0)
        dispatch.finish(0)
        assert await client.receive() == b"0"
        assert server.bytes_in_flight == len(large) - 4
        client.send(large[200_000:])
        await until(lambda: len(dispatch.late) == 2)
        assert server.bytes_in_flight == 0, "its records are in the log"


async def test_a_connection_waits_for_memory_once_however_many_answers_go_out_meanwhile() -> None:
    dispatch = Late()
    async with serving(dispatch, queued_max_bytes=100) as server:
        async with connected(server) as first, connected(server) as other:
            for number in range(1, 6):
                first.send(frame(PRODUCE))
                await until(lambda count=number: len(dispatch.late) == count)  # type: ignore[misc]
            other.send(frame(bytes([9]) * 200))
            await until(lambda: len(dispatch.held) == 1)
            first.send(frame(PRODUCE + b"waits"))
            await until(lambda: len(server._waiting_for_memory) == 1)
            for place in range(5):
                dispatch.finish(place)
                assert await first.receive() == b"%d" % place
                assert len(server._waiting_for_memory) == 1
            dispatch.held[0].answer([frame(b"done")])
            await until(lambda: len(dispatch.late) == 6)
            assert not server._waiting_for_memory
            assert server.bytes_in_flight == 0


async def test_running_out_of_descriptors_is_logged_once_and_passes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kbroker.network.server.ACCEPT_PAUSE_S", 0.05)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as server:
        client = socket.create_connection(("127.0.0.1", server.ports["PLAINTEXT"]))
        await until(lambda: len(server.connections) == 1)
        late = socket.socket()
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        fillers: list[int] = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
            try:
                while True:
                    fillers.append(os.dup(0))
            except OSError:
                pass
            late.connect(("127.0.0.1", server.ports["PLAINTEXT"]))
            late.sendall(frame(b"late"))
            await asyncio.sleep(0.3)
            client.sendall(frame(b"served"))
            loop = asyncio.get_running_loop()
            client.setblocking(False)
            assert await asyncio.wait_for(loop.sock_recv(client, 100), 20) == frame(b"served")
        finally:
            for descriptor in fillers:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        late.setblocking(False)
        assert await asyncio.wait_for(loop.sock_recv(late, 100), 20) == frame(b"late")
        assert len([r for r in caplog.records if "cannot accept" in r.getMessage()]) == 1
        client.close()
        late.close()


async def test_a_large_frame_that_waits_for_its_turn_is_not_taken_apart_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over, taken, consume = [True] * 20, list[int](), Connection._consume

    def noted(self: Connection, buffer: Any, end: int) -> Any:
        taken.append(end)
        return consume(self, buffer, end)

    monkeypatch.setattr(Connection, "_consume", noted)
    async with serving() as server, connected(server) as client:
        monkeypatch.setattr(server, "turn_is_over", lambda now: bool(over) and over.pop())
        sent = bytes(LARGE_FRAME + 1)
        client.send(frame(sent))
        assert await client.receive() == sent
        assert not over
        assert len(taken) <= 3, "when it has come, and when it is its turn"


async def test_little_is_received_of_large_frames_when_the_turn_has_had_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As much as lies in the sockets of hundreds of clients would take a second to copy into fresh memory."""
    taken = list[int]()
    large = bytes(1_000_000)
    async with serving() as server, connected(server) as client:
        client.send(frame(large))
        assert await client.receive() == large
        (connection,) = server.connections
        receive = connection._recv_into

        def noted(view: Any) -> int:
            taken.append(len(view))
            return receive(view)

        monkeypatch.setattr(connection, "_recv_into", noted)
        monkeypatch.setattr(server, "turn_is_over", lambda now: len(taken) < 30)
        client.send(frame(large))
        assert await client.receive() == large
    assert max(taken[:30]) <= LARGE_FRAME
    assert max(taken[30:]) > LARGE_FRAME

"""Strangers at a listener with TLS and logins: whatever they send, they stay out, disturb nobody, and leave a line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker import handlers
from kbroker.cluster.cluster_features import ClusterFeatures
from kbroker.network.authentication import FAILED, TOKENS, VERSIONS, Mechanism, SaslListener
from kbroker.network.dispatch import Dispatcher
from kbroker.network.limits import LARGE_FRAME, ServerLimits
from kbroker.network.server import Listener, Server
from kbroker.network.strangers import MOST_WAITING, TURN_S, Strangers
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import encode_request
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from kbroker.security.exchange import OAUTHBEARER, PLAIN, SCRAM_SHA_256, Identity
from kbroker.security.limited_lines import LINES_EACH, PERIOD_S
from kbroker.security.oauthbearer import OAuthBearerServer
from kbroker.security.plain import PlainServer
from kbroker.security.quotas import ANY, REQUESTED, ClientQuotas, Entity
from kbroker.security.scram import KnownUser, ScramClient, ScramServer, credential_of, salted_password
from kbroker.security.security_protocol import SecurityProtocol
from kbroker.security.signed_tokens import SignedValidator
from tests.fixtures.certificates import Authority
from tests.fixtures.certificates import Identity as Certified
from tests.kbroker.network.serving import until
from tests.kbroker.network.test_authentication import Peer, log_in_by, peer, sasl_server
from tests.kbroker.network.tls_serving import tls_listener
from tests.protocol.frames import joined

PASSWORD = "kept-very-secret"
ENOUGH_S = 30.0
SALT = b"salt"
FIRSTS = {
    PLAIN: b"\0alice\0guessed",
    SCRAM_SHA_256: b"n,,n=alice,r=clients",
    OAUTHBEARER: b"n,,\x01auth=Bearer e30.e30.AAAA\x01\x01",
}
CREDENTIAL = credential_of(SCRAM_SHA_256, salted_password(SCRAM_SHA_256, PASSWORD, SALT, 4096), SALT, 4096)


@asynccontextmanager
async def secured(broker: Certified, authority: Authority) -> AsyncIterator[Server]:
    """A listener SASL_SSL whose answers to strangers wait for nothing."""
    handlers.load_all()
    nowhere: Any = None
    services: Any = SimpleNamespace(features=ClusterFeatures(nowhere))
    server = Server(Dispatcher(services), ServerLimits())
    server.tls = {"CLIENTS": tls_listener(broker, authority)}
    server.bind([Listener("CLIENTS", "127.0.0.1", 0, SecurityProtocol.SASL_SSL)])
    numbers = count()

    def scram() -> ScramServer:
        alice = KnownUser(CREDENTIAL, Identity("alice"))
        return ScramServer(
            SCRAM_SHA_256, lambda name, is_token: alice if name == "alice" else None, f"n{next(numbers)}"
        )

    mechanisms = {
        PLAIN: Mechanism(lambda: PlainServer({"alice": PASSWORD}), 0),
        SCRAM_SHA_256: Mechanism(scram, 0),
        OAUTHBEARER: Mechanism(lambda: OAuthBearerServer(lambda token: SignedValidator().validate(token, [], 0)), 0),
    }
    server.sasl["CLIENTS"] = SaslListener(mechanisms, failure_delay_s=0)
    server.start()
    try:
        yield server
    finally:
        await server.stop(drain_timeout=0)


@asynccontextmanager
async def over_tls(server: Server, authority: Authority) -> AsyncIterator[Peer]:
    context = ssl.create_default_context(cafile=str(authority.file))
    async with asyncio.timeout(ENOUGH_S):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.ports["CLIENTS"], ssl=context, server_hostname="localhost"
        )
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


async def comes_in(server: Server, authority: Authority) -> None:
    """Somebody who knows the password."""
    async with over_tls(server, authority) as client:
        await client.log_in(b"\0alice\0" + PASSWORD.encode())
        assert (await client.versions()).error_code is ErrorCode.NONE


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What is logged holds no password and no traceback."""
    with caplog.at_level(logging.INFO):
        yield caplog
    assert PASSWORD not in caplog.text
    assert "Traceback" not in caplog.text


def lines_about_ends(caplog: pytest.LogCaptureFixture) -> int:
    return sum(line.startswith("closing the connection") for line in caplog.messages)


def spoiled(rng: random.Random, data: bytes) -> bytes:
    """Cut, and with some bytes changed."""
    changed = bytearray(data)
    for _ in range(rng.randrange(6)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed[: rng.randrange(1, len(changed) + 1)])


async def send_and_go(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send it and say that this is all; returns when the server has closed its side, too."""
    writer.write(data)
    writer.write_eof()
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), ENOUGH_S)
    writer.close()


async def test_spoiled_first_flights_of_tls_let_nobody_in(
    authority: Authority, broker_identity: Certified, quiet: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(5)
    async with secured(broker_identity, authority) as server:
        context = ssl.create_default_context(cafile=str(authority.file))
        for _ in range(80):
            sent = ssl.MemoryBIO()
            client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            streams = await asyncio.open_connection("127.0.0.1", server.ports["CLIENTS"])
            await send_and_go(*streams, spoiled(rng, sent.read()))
        await comes_in(server, authority)
        await until(lambda: not server.connections and not handshakes_of(server), ENOUGH_S)
        assert 0 < lines_about_ends(quiet) <= 80 + 1


@pytest.mark.slow
async def test_spoiled_second_flights_of_tls_let_nobody_in(
    authority: Authority, broker_identity: Certified, quiet: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(6)
    async with secured(broker_identity, authority) as server:
        for _ in range(40):
            received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
            context = ssl.create_default_context(cafile=str(authority.file))
            context.maximum_version = rng.choice([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
            client = context.wrap_bio(received, sent, server_hostname="localhost")
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["CLIENTS"])
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            writer.write(sent.read())
            while not sent.pending:
                received.write(await asyncio.wait_for(reader.read(1 << 16), ENOUGH_S))
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.do_handshake()
            await send_and_go(reader, writer, spoiled(rng, sent.read()))
            assert "User:alice" not in {connection.principal for connection in server.connections}
        await comes_in(server, authority)
        await until(lambda: not server.connections and not handshakes_of(server), ENOUGH_S)
        assert 0 < lines_about_ends(quiet) <= 40 + 1


def handshakes_of(server: Server) -> int:
    return server.handshakes_on("SSL").count


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", FIRSTS)
async def test_spoiled_frames_and_tokens_let_nobody_in(
    mechanism: str, authority: Authority, broker_identity: Certified, quiet: pytest.LogCaptureFixture
) -> None:
    """In every state: before the handshake of SASL, with a first token, and with a second one."""
    rng = random.Random(7)
    frames = [
        joined(encode_request(request, version, 1, "x"))
        for request, version in (
            (SaslHandshakeRequest(mechanism=mechanism), 1),
            (SaslAuthenticateRequest(auth_bytes=FIRSTS[mechanism]), 2),
            (SaslAuthenticateRequest(auth_bytes=b"c=biws,r=clientsn1,p=" + b"A" * 43 + b"="), 2),
        )
    ]
    async with secured(broker_identity, authority) as server:
        served = server.dispatch
        names: set[str] = set()

        def noting(connection: Any, frame: memoryview) -> Any:
            names.add(connection.principal)
            return served(connection, frame)

        server.dispatch = noting
        for state in [number % 3 for number in range(45)]:
            async with over_tls(server, authority) as client:
                client.send(b"".join(frames[:state]) + spoiled(rng, frames[state]))
                client.writer.close()
                await until(lambda: not server.connections, ENOUGH_S)
        assert "User:alice" not in names
        await comes_in(server, authority)
        assert "User:alice" in names
        assert 0 < lines_about_ends(quiet) <= 45 + 1
        await until(lambda: not server.connections, ENOUGH_S)


async def test_a_login_that_was_overheard_does_not_work_again(
    authority: Authority, broker_identity: Certified, quiet: pytest.LogCaptureFixture
) -> None:
    async with secured(broker_identity, authority) as server:
        alice = ScramClient(SCRAM_SHA_256, "alice", PASSWORD, "clients")
        async with over_tls(server, authority) as client:
            await client.handshake(SCRAM_SHA_256)
            overheard = [alice.first()]
            proof = alice.step((await client.token(overheard[0])).auth_bytes)
            assert proof is not None
            overheard.append(proof)
            assert (await client.token(proof)).error_code is ErrorCode.NONE
        async with over_tls(server, authority) as thief:
            await thief.handshake(SCRAM_SHA_256)
            assert (await thief.token(overheard[0])).error_code is ErrorCode.NONE
            assert (await thief.token(overheard[1])).error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await thief.is_closed(ENOUGH_S)
    assert sum("another nonce in the proof of user 'alice'" in line for line in quiet.messages) == 1


@pytest.mark.slow
async def test_hundreds_of_wrong_passwords_leave_few_lines_and_others_are_served_meanwhile(
    authority: Authority, broker_identity: Certified, quiet: pytest.LogCaptureFixture
) -> None:
    async with secured(broker_identity, authority) as server:
        server.sasl["INSIDE"] = server.sasl["CLIENTS"]
        server.bind([Listener("INSIDE", "127.0.0.1", 0, SecurityProtocol.SASL_PLAINTEXT)])

        async def guess(times: int) -> None:
            for _ in range(times):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["INSIDE"])
                client = Peer(reader, writer)
                await client.handshake()
                assert (await client.token(b"\0alice\0wrong")).error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
                await client.close()

        begun = monotonic()
        guesses = asyncio.gather(*(guess(40) for _ in range(10)))
        served = 0
        while not guesses.done():
            await comes_in(server, authority)
            served += 1
        await guesses
        seconds = monotonic() - begun
    server.sasl["INSIDE"].lines.tell()
    told = [each.getMessage() for each in quiet.records if each.levelno >= logging.WARNING]
    periods = seconds / PERIOD_S + 2
    assert 0 < len([line for line in told if "login refused" in line]) <= LINES_EACH * periods
    counts = [int(line.split()[0]) for line in told if "more refused logins of 127.0.0.1" in line]
    assert sum(counts) + len([line for line in told if "login refused" in line]) == 400
    assert served > 0


# -- their share of a turn of the event loop --------------------------------------------------------------------------


def work_of(ends_after_s: float, done: list[str], name: str) -> Any:
    """Work that takes so long."""

    def work() -> None:
        end = monotonic() + ends_after_s
        while monotonic() < end:
            pass
        done.append(name)

    return work


async def test_strangers_are_served_in_order_and_others_between_them() -> None:
    loop = asyncio.get_running_loop()
    strangers, done = Strangers(loop), list[str]()

    def someone_else() -> None:
        done.append("-")
        if done.count("-") < 20:
            loop.call_soon(someone_else)

    loop.call_soon(someone_else)
    for name in "abcdef":
        strangers.serve(work_of(1.1 * TURN_S, done, name))
    assert done == ["a"], "the others wait"
    await until(lambda: done.count("-") == 20)
    assert [name for name in done if name != "-"] == list("abcdef")
    assert max(map(len, "".join(done).split("-"))) == 1, "never two in one turn"
    assert strangers.have_time()


async def test_a_listener_accepts_nobody_while_many_wait_who_have_not_logged_in() -> None:
    waiting: list[int] = []

    class Accepted(Counter[str]):
        def __setitem__(self, listener: str, count: int) -> None:
            waiting.append(server.strangers.waiting)
            super().__setitem__(listener, count)

    async with sasl_server() as server:
        server.accepted = Accepted()
        for _ in range(MOST_WAITING + 50):
            server.strangers.wait(work_of(1.1 * TURN_S, [], ""))
        async with peer(server) as client:
            assert (await client.handshake()).error_code is ErrorCode.NONE
    assert waiting
    assert waiting[0] <= MOST_WAITING


async def test_strangers_elsewhere_keep_nobody_from_the_brokers_own_listener() -> None:
    """A crowd stands before the clients' listener: a broker comes in, logs in and is served."""
    async with sasl_server(privileged_listener="INSIDE") as server:
        server.sasl["INSIDE"] = server.sasl["CLIENTS"]
        server.bind([Listener("INSIDE", "127.0.0.1", 0, SecurityProtocol.SASL_PLAINTEXT)])
        server.ports["CLIENTS"] = server.ports["INSIDE"]

        def stay() -> None:
            server.strangers.wait(stay)

        for _ in range(MOST_WAITING + 50):
            stay()
        async with asyncio.timeout(ENOUGH_S), peer(server) as broker:
            await broker.log_in()
            await broker.versions()
        assert server.strangers.waiting > MOST_WAITING
        server.strangers._waiting.clear()


async def test_who_logs_in_again_does_not_wait_for_strangers() -> None:
    async with sasl_server(max_reauth_ms=60_000) as server, peer(server) as client:
        await log_in_by(client, SCRAM_SHA_256)

        def stay() -> None:
            server.strangers.wait(stay)

        stay()
        server.strangers.serve = server.strangers.wait = lambda work: None  # type: ignore[method-assign]
        async with asyncio.timeout(ENOUGH_S):
            await log_in_by(client, SCRAM_SHA_256)
        server.strangers._waiting.clear()


async def test_a_login_that_goes_on_and_on_is_ended_and_who_has_logged_in_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with sasl_server() as server, peer(server) as honest:
        await honest.log_in()
        monkeypatch.setattr("kbroker.network.server.LONGEST_LOGIN_S", 0.3)
        assert server._idle_timer is not None
        server._idle_timer.cancel()
        server._schedule_idle_check()
        async with asyncio.timeout(ENOUGH_S), peer(server) as slow:
            slow.writer.write(b"\0")  # of the size of its first request
            assert await slow.is_closed(ENOUGH_S)
        await until(lambda: not server._logging_in, ENOUGH_S)
        await honest.versions()


async def test_frames_that_strangers_announce_and_do_not_send_take_nobodys_memory_of_requests() -> None:
    async with sasl_server(queued_max_bytes=3_000) as server, peer(server) as honest:
        await honest.log_in()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(3):
                stranger = await stack.enter_async_context(peer(server))
                stranger.send((1_500).to_bytes(4) + bytes(10))
            await until(lambda: sum(each._frame is not None for each in server.connections) == 3, ENOUGH_S)
            assert (await honest.versions()).error_code is ErrorCode.NONE
            async with peer(server) as other:
                await other.log_in()
                assert (await other.versions()).error_code is ErrorCode.NONE
        await until(lambda: server.bytes_in_flight == 0, ENOUGH_S)


async def test_who_has_logged_in_does_not_wait_for_a_crowd_that_has_not() -> None:
    """All have sent something before the loop looks; the last of them is served as soon as one stranger is."""
    begun: list[str] = []
    async with sasl_server() as server:
        server.sasl["CLIENTS"].mechanisms["SLOW"] = Mechanism(work_of(1.1 * TURN_S, begun, "stranger"))  # type: ignore[index]
        async with peer(server) as honest, contextlib.AsyncExitStack() as stack:
            await honest.log_in()
            crowd = [await stack.enter_async_context(peer(server)) for _ in range(20)]
            await until(lambda: len(server.connections) == 21)
            for each in crowd:
                each.request(SaslHandshakeRequest(mechanism="SLOW"), 1)
            honest.request(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
            await honest.receive()
            before = len(begun)
            for each in crowd:
                await each.receive()
    assert before < 10
    assert len(begun) == 20


async def test_what_strangers_send_behind_a_frame_waits_among_strangers_and_is_served_in_its_turn() -> None:
    async with sasl_server() as server, peer(server) as client:
        server.sasl["CLIENTS"].max_receive_bytes = 4 * LARGE_FRAME
        times, waiting = iter([True]), list[Callable[[], None]]()
        server.strangers.have_time = lambda: next(times, False)  # type: ignore[method-assign]
        server.strangers.wait = lambda work: waiting.append(work)  # type: ignore[method-assign]
        server.turn_is_over = lambda now: True  # type: ignore[method-assign]
        version = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        handshake = encode_request(SaslHandshakeRequest(mechanism=PLAIN), 1, 8, "test")
        client.send(joined(encode_request(version, 3, 7, "test")) + joined(handshake))
        await client.receive()
        (connection,) = server.connections
        login: Any = connection._dispatch
        for _ in range(10):
            await asyncio.sleep(0)
        assert login.state is VERSIONS
        (work,) = waiting
        work()
        assert login.state is TOKENS
        waiting.clear()
        client.request(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t" * 30_000)]), 1)
        while login.state is TOKENS:
            await until(lambda: bool(waiting), ENOUGH_S)
            waiting.pop()()
        assert login.state is FAILED


async def test_what_comes_before_the_login_is_counted_by_no_quota() -> None:
    """Else strangers, who name any client id, would use up what clients with a login may use."""
    async with sasl_server() as server:
        quotas = ClientQuotas(11, 1000, 11)
        quotas.replace(Entity(None, ANY), {REQUESTED: 1e-6})
        server.dispatch = Dispatcher(server.dispatch.services, quotas=quotas)  # type: ignore[attr-defined]
        for _ in range(2):
            async with peer(server) as client:
                assert (await client.versions()).throttle_time_ms == 0
                await client.log_in()
        assert not quotas._counters
        async with peer(server) as client:
            await client.log_in()
            await client.versions()
            assert quotas._counters, "who has logged in is counted"


async def test_a_request_of_many_elements_during_a_login_is_not_read() -> None:
    """A login has none: they would cost a stranger's millisecond many times over."""
    async with sasl_server() as server, peer(server) as client:
        await client.handshake()
        topics = [MetadataRequest.MetadataRequestTopic(name="t") for _ in range(101)]
        begun = monotonic()
        client.request(MetadataRequest(topics=topics), 9)
        assert await client.is_closed(20)
        assert monotonic() - begun >= server.sasl["CLIENTS"].failure_delay_s

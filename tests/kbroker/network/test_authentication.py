"""Logging in over a real socket: every row of the table of states, hostile bytes, and what it costs others."""

import asyncio
import base64
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic, time
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker import handlers
from kbroker.client.authentication import conversation_of
from kbroker.client.errors import LoginFailed
from kbroker.client.security import Security
from kbroker.cluster.cluster_features import ClusterFeatures
from kbroker.network.authentication import Mechanism, SaslListener, taken
from kbroker.network.connection import CLOSED, WORKING
from kbroker.network.dispatch import Dispatcher
from kbroker.network.limits import ServerLimits
from kbroker.network.server import Listener, Server
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import decode_response, encode_request
from kbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kbroker.security.exchange import PLAIN, SCRAM_SHA_256, Identity
from kbroker.security.oauthbearer import OAuthBearerServer, ValidToken
from kbroker.security.plain import PlainServer
from kbroker.security.scram import KnownUser, ScramClient, ScramServer, credential_of, salted_password
from kbroker.security.security_protocol import SecurityProtocol
from tests.kbroker.network.serving import Client, frame, until
from tests.protocol.frames import joined

PASSWORDS = {"alice": "secret", "bob": "secret"}
GOOD, WRONG = b"\0alice\0secret", b"\0alice\0wrong"
DELAY_S = 0.15
SALT = b"salt"
CREDENTIAL = credential_of(SCRAM_SHA_256, salted_password(SCRAM_SHA_256, "secret", SALT, 4096), SALT, 4096)


async def found_later(user: KnownUser | None) -> KnownUser | None:
    await asyncio.sleep(0)
    return user


def scram_server() -> ScramServer:
    users = {"alice": KnownUser(CREDENTIAL, Identity("alice"))}
    return ScramServer(SCRAM_SHA_256, lambda name, is_token: found_later(users.get(name)), "nonce")


def bearer_server() -> OAuthBearerServer:
    return OAuthBearerServer(lambda token: ValidToken(token, int(time() * 1000) + 60_000))


@asynccontextmanager
async def sasl_server(max_reauth_ms: int = 0, **more: Any) -> AsyncIterator[Server]:
    handlers.load_all()
    nowhere: Any = None
    services: Any = SimpleNamespace(features=ClusterFeatures(nowhere))
    server = Server(Dispatcher(services), ServerLimits(**more))
    server.bind([Listener("CLIENTS", "127.0.0.1", 0, SecurityProtocol.SASL_PLAINTEXT)])
    mechanisms = {
        PLAIN: Mechanism(lambda: PlainServer(PASSWORDS), max_reauth_ms),
        SCRAM_SHA_256: Mechanism(scram_server, max_reauth_ms),
        "OAUTHBEARER": Mechanism(bearer_server, max_reauth_ms),
    }
    server.sasl["CLIENTS"] = SaslListener(mechanisms, DELAY_S, max_receive_bytes=2_000)
    server.start()
    try:
        yield server
    finally:
        await server.stop(drain_timeout=0.2)


class Peer(Client):
    """Sends requests by name, and knows what their answers are."""

    async def ask(self, request: Any, version: int, answer: Any) -> Any:
        self.request(request, version)
        return decode_response(await self.receive(), answer, version)[1]

    def request(self, request: Any, version: int) -> None:
        self.send(joined(encode_request(request, version, 7, "test")))

    async def versions(self, version: int = 3, name: str = "test") -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        answer: ApiVersionsResponse = await self.ask(request, version, ApiVersionsResponse)
        return answer

    async def handshake(self, mechanism: str = PLAIN, version: int = 1) -> SaslHandshakeResponse:
        request = SaslHandshakeRequest(mechanism=mechanism)
        answer: SaslHandshakeResponse = await self.ask(request, version, SaslHandshakeResponse)
        return answer

    async def token(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=token)
        answer: SaslAuthenticateResponse = await self.ask(request, version, SaslAuthenticateResponse)
        return answer

    async def log_in(self, token: bytes = GOOD) -> SaslAuthenticateResponse:
        assert (await self.handshake()).error_code is ErrorCode.NONE
        answer = await self.token(token)
        assert answer.error_code is ErrorCode.NONE
        return answer


@asynccontextmanager
async def peer(server: Server) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["CLIENTS"])
    client = Peer(reader, writer)
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def one_peer(**more: Any) -> AsyncIterator[Peer]:
    async with sasl_server(**more) as server, peer(server) as client:
        yield client


def principals(server: Server) -> list[str]:
    return [connection.principal for connection in server.connections]


METADATA = MetadataRequest(topics=[])


# -- getting in -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_versions_handshake_and_token_let_a_client_in(version: int) -> None:
    async with sasl_server() as server, peer(server) as client:
        assert (await client.versions()).error_code is ErrorCode.NONE
        assert (await client.handshake()).mechanisms == [PLAIN, SCRAM_SHA_256, "OAUTHBEARER"]
        answer = await client.token(GOOD, version)
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
        assert principals(server) == ["User:alice"]
        assert (await client.versions(4)).error_code is ErrorCode.NONE
        (connection,) = server.connections
        assert connection._dispatch is server.dispatch  # nothing watches over a login that never ends


async def test_versions_need_not_be_asked_for() -> None:
    async with sasl_server() as server, peer(server) as client:
        await client.log_in()
        assert principals(server) == ["User:alice"]


async def test_a_bad_question_for_versions_may_be_asked_again() -> None:
    async with one_peer() as client:
        assert (await client.versions(3, "bad name")).error_code is ErrorCode.INVALID_REQUEST
        client.send(frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\0"))
        _, answer = decode_response(await client.receive(), ApiVersionsResponse, 0)
        assert answer.error_code is ErrorCode.UNSUPPORTED_VERSION
        assert (await client.versions()).error_code is ErrorCode.NONE
        await client.log_in()


async def test_the_old_handshake_takes_bare_tokens() -> None:
    async with sasl_server() as server, peer(server) as client:
        assert (await client.handshake(version=0)).error_code is ErrorCode.NONE
        client.send(frame(GOOD))
        assert await client.receive() == b""
        assert principals(server) == ["User:alice"]
        assert (await client.versions()).error_code is ErrorCode.NONE


async def test_a_mechanism_may_take_its_time() -> None:
    async with sasl_server() as server, peer(server) as client:
        await converse(client, password="secret")
        assert principals(server) == ["User:alice"]


async def converse(client: Peer, password: str, user: str = "alice") -> None:
    """Log in as the clients of this package do."""
    settings = Security(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_username=user, sasl_password=password
    )
    conversation, given = conversation_of(settings, "there"), None
    with contextlib.suppress(StopIteration):
        while True:
            asked = conversation.send(given)
            if callable(asked):
                given = asked()
            elif isinstance(asked, SaslHandshakeRequest):
                given = await client.handshake(asked.mechanism)
            else:
                given = await client.token(asked.auth_bytes)


# -- staying out ------------------------------------------------------------------------------------------------------

Attempt = Callable[[Peer], Awaitable[Any]]


async def other_api_first(client: Peer) -> None:
    client.request(METADATA, 9)


async def token_first(client: Peer) -> None:
    client.request(SaslAuthenticateRequest(auth_bytes=GOOD), 2)


async def no_request_at_all(client: Peer) -> None:
    client.send(frame(b"`\x82\x02\x10\x06\x09*\x86H\x86\xf7\x12\x01\x02\x02"))


async def too_large_a_frame(client: Peer) -> None:
    client.send(struct.pack(">i", 2_001))


async def negative_size(client: Peer) -> None:
    client.send(struct.pack(">i", -1) + b"abc")


async def failing_bare_token(client: Peer) -> None:
    await client.handshake(version=0)
    client.send(frame(WRONG))


@pytest.mark.parametrize(
    "attempt",
    [other_api_first, token_first, no_request_at_all, too_large_a_frame, negative_size, failing_bare_token],
)
async def test_what_has_no_answer_ends_the_connection_after_the_delay(attempt: Attempt) -> None:
    async with one_peer() as client:
        begun = monotonic()
        await attempt(client)
        assert await client.is_closed(20)
        assert monotonic() - begun >= DELAY_S


async def versions_twice(client: Peer) -> None:
    await client.versions()
    client.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)


async def a_version_of_the_future(client: Peer) -> None:
    client.send(frame(struct.pack(">hhih", 17, 9, 7, -1)))


async def a_body_that_is_none(client: Peer) -> None:
    client.send(frame(struct.pack(">hhih", 17, 1, 7, -1) + b"\x7f\xff"))


async def a_header_that_is_none(client: Peer) -> None:
    await client.handshake()
    client.send(frame(b"\xff\xff"))


@pytest.mark.parametrize(
    "attempt", [versions_twice, a_version_of_the_future, a_body_that_is_none, a_header_that_is_none]
)
async def test_what_cannot_be_read_ends_the_connection_at_once(attempt: Attempt) -> None:
    async with one_peer() as client:
        await attempt(client)
        assert await client.is_closed(20)


async def answered_and_closed(client: Peer, answer: Awaitable[Any]) -> Any:
    begun = monotonic()
    got = await answer
    assert monotonic() - begun >= DELAY_S
    assert await client.is_closed(20)
    return got


async def test_an_unknown_mechanism_is_answered_with_those_there_are() -> None:
    async with one_peer() as client:
        answer = await answered_and_closed(client, client.handshake("GSSAPI"))
        assert answer.error_code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == [PLAIN, SCRAM_SHA_256, "OAUTHBEARER"]


async def test_a_wrong_password_is_answered_after_the_delay_and_says_no_more_than_kafka() -> None:
    async with one_peer() as client:
        await client.handshake()
        answer = await answered_and_closed(client, client.token(WRONG))
        assert answer.error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret")])
async def test_scram_does_not_tell_a_wrong_user_from_a_wrong_password(user: str, password: str) -> None:
    async with one_peer() as client:
        text = (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
        )
        with pytest.raises(LoginFailed, match=text) as caught:
            await converse(client, password, user)
        assert password not in str(caught.value).replace(text, "")


async def test_another_request_during_a_login_is_refused_in_its_own_form() -> None:
    async with one_peer() as client:
        await client.handshake()
        answer = await answered_and_closed(client, client.ask(METADATA, 12, MetadataResponse))
        assert answer is not None
        await asyncio.sleep(0)
    async with one_peer() as client:
        await client.handshake()
        again = await answered_and_closed(client, client.handshake())
        assert again.error_code is ErrorCode.ILLEGAL_SASL_STATE


async def test_nothing_is_read_while_a_refusal_waits() -> None:
    async with sasl_server() as server, peer(server) as client:
        await client.handshake()
        client.request(SaslAuthenticateRequest(auth_bytes=WRONG), 2)
        for _ in range(50):
            client.request(SaslHandshakeRequest(mechanism=PLAIN), 1)
            client.request(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
        with contextlib.suppress(ConnectionError):  # what was not read may reset the connection
            _, answer = decode_response(await client.receive(), SaslAuthenticateResponse, 2)
            assert answer.error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.is_closed(20)
        assert "User:alice" not in principals(server)


async def test_a_client_that_is_in_gets_no_second_login() -> None:
    async with one_peer() as client:
        await client.log_in()
        assert (await client.handshake()).error_code is ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.token(GOOD)).error_code is ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.versions()).error_code is ErrorCode.NONE


async def test_a_large_request_is_read_again_after_the_login() -> None:
    async with one_peer() as client:
        await client.log_in()
        client.request(ApiVersionsRequest(client_software_name="a" * 5_000, client_software_version="1"), 3)
        assert await client.receive()


async def test_a_large_request_behind_the_last_token_is_judged_by_what_holds_after_the_login() -> None:
    async with one_peer() as client:
        await client.handshake()
        large = ApiVersionsRequest(client_software_name="a" * 5_000, client_software_version="1")
        token = joined(encode_request(SaslAuthenticateRequest(auth_bytes=GOOD), 2, 7, "test"))
        client.send(token + joined(encode_request(large, 3, 7, "test")))
        answer = decode_response(await client.receive(), SaslAuthenticateResponse, 2)[1]
        assert answer.error_code is ErrorCode.NONE
        assert decode_response(await client.receive(), ApiVersionsResponse, 3)[1].api_keys


# -- logging in again (KIP-368) ---------------------------------------------------------------------------------------


async def test_a_login_that_ends_is_made_anew_on_the_same_connection() -> None:
    async with sasl_server(max_reauth_ms=60_000) as server, peer(server) as client:
        assert (await client.log_in()).session_lifetime_ms == 60_000
        assert (await client.log_in()).session_lifetime_ms == 60_000
        assert (await client.handshake()).error_code is ErrorCode.ILLEGAL_SASL_STATE  # within a second
        assert (await client.versions()).error_code is ErrorCode.NONE
        assert principals(server) == ["User:alice"]


async def test_a_tokens_end_is_the_logins_end_when_it_comes_first() -> None:
    async with one_peer(max_reauth_ms=600_000) as client:
        await client.handshake("OAUTHBEARER")
        answer = await client.token(b"n,,\x01auth=Bearer carol\x01\x01")
        assert 0 < answer.session_lifetime_ms <= 60_000


async def test_after_the_end_any_request_closes_the_connection() -> None:
    async with one_peer(max_reauth_ms=1) as client:
        assert (await client.log_in()).session_lifetime_ms == 1
        await asyncio.sleep(0.01)
        client.request(ApiVersionsRequest(), 0)
        assert await client.is_closed(20)


async def test_nobody_becomes_somebody_else_by_logging_in_again() -> None:
    async with one_peer(max_reauth_ms=60_000) as client:
        await client.log_in()
        await client.handshake()
        answer = await answered_and_closed(client, client.token(b"\0bob\0secret"))
        assert answer.error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
        told = "Cannot change principals during re-authentication from User.alice: User.bob"
        assert answer.error_message == told


async def test_another_mechanism_is_refused_without_a_word() -> None:
    async with one_peer(max_reauth_ms=60_000) as client:
        await client.log_in()
        assert (await client.handshake(SCRAM_SHA_256)).error_code is ErrorCode.NONE
        client.request(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 2)
        assert await client.is_closed(20)


async def test_a_wrong_password_the_second_time_says_so() -> None:
    async with one_peer(max_reauth_ms=60_000) as client:
        await client.log_in()
        await client.handshake()
        assert "Invalid username" in ((await answered_and_closed(client, client.token(WRONG))).error_message or "")


def test_a_token_leaves_no_trace_where_it_was_received() -> None:
    frame = bytearray(b"header" + WRONG)
    assert taken(memoryview(frame)[6:], memoryview(frame)) == WRONG
    assert frame == bytes(len(frame))
    assert taken(memoryview(WRONG), memoryview(WRONG)) == WRONG  # what cannot be written is left as it is


# -- what nobody thought of ----------------------------------------------------------------------------------------


class Broken:
    """A mechanism with a bug, at once or a little later."""

    identity = None

    def __init__(self, is_late: bool) -> None:
        self._is_late = is_late

    def step(self, token: bytes) -> Any:
        if self._is_late:
            return self._later()
        raise OverflowError("integer is too large")

    async def _later(self) -> bytes:
        await asyncio.sleep(0)
        raise OverflowError("integer is too large")


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_mechanism_that_fails_refuses_its_client_and_no_other(
    is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with sasl_server() as server:
        broken: Any = Mechanism(lambda: Broken(is_late), 0)  # type: ignore[arg-type,return-value]
        server.sasl["CLIENTS"].mechanisms["SCRAM-SHA-512"] = broken  # type: ignore[index]
        async with peer(server) as client:
            await client.handshake("SCRAM-SHA-512")
            answer = await answered_and_closed(client, client.token(b"\0alice\0hunter2"))
            assert answer.error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "OverflowError" not in (answer.error_message or "")
        async with peer(server) as honest:
            await honest.log_in()
    assert sum("could not be checked" in line for line in caplog.messages) >= 1
    assert "hunter2" not in caplog.text


async def test_a_login_that_ends_after_its_connection_touches_nobody_elses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A token is looked at while its connection is closed: the descriptor may be another client's by then."""
    found: asyncio.Future[KnownUser | None] = asyncio.get_running_loop().create_future()
    caplog.set_level("DEBUG")
    async with sasl_server() as server:
        server.sasl["CLIENTS"].failure_delay_s = 0
        slow = Mechanism(lambda: ScramServer(SCRAM_SHA_256, lambda name, is_token: found, "nonce"), 0)
        server.sasl["CLIENTS"].mechanisms["SCRAM-SHA-512"] = slow  # type: ignore[index]
        async with peer(server) as client:
            await client.handshake("SCRAM-SHA-512")
            client.request(SaslAuthenticateRequest(auth_bytes=b"n,,n=nobody,r=x"), 2)
            await until(lambda: any(each.state == WORKING for each in server.connections), 20)
            (connection,) = server.connections
            connection.close("the server needs the room")
            found.set_result(None)
            async with peer(server) as honest:
                await honest.log_in()
                await asyncio.sleep(0)
                assert connection.state == CLOSED
                assert (await honest.versions()).error_code is ErrorCode.NONE
                assert len(server.connections) == 1
                closed = [line for line in caplog.messages if line.startswith("closing the connection")]
                assert len(closed) == 1, "it was closed once"


# -- hostile peers ----------------------------------------------------------------------------------------------------


async def test_random_bytes_before_a_login_never_get_in_and_never_disturb_others() -> None:
    rng = random.Random(11)
    async with sasl_server() as server:
        server.sasl["CLIENTS"].failure_delay_s = 0
        whole = [
            joined(encode_request(request, version, 1, "x"))
            for request, version in (
                (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3),
                (SaslHandshakeRequest(mechanism=PLAIN), rng.randrange(2)),
                (SaslAuthenticateRequest(auth_bytes=b"\0alice\0guess"), 2),
            )
        ]
        for _ in range(150):
            data = bytearray(b"".join(whole[: rng.randrange(1, 4)]))
            for _ in range(rng.randrange(6)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            async with peer(server) as client:
                client.send(bytes(data[: rng.randrange(1, len(data) + 1)]))
                client.writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(client.reader.read(), 20)
            assert "User:alice" not in principals(server)
        async with peer(server) as honest:
            await honest.log_in()


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM_SHA_256, "OAUTHBEARER"])
async def test_spoiled_tokens_of_who_is_in_make_nobody_somebody_else(mechanism: str) -> None:
    """In a second login on the same connection: it goes on as who it was, or it ends."""
    rng = random.Random(13)
    firsts = {
        PLAIN: (b"\0bob\0secret", b"\0alice\0wrong"),
        SCRAM_SHA_256: (b"n,,n=bob,r=clients", b"c=biws,r=clientsnonce,p=AAAA"),
        "OAUTHBEARER": (b"n,,\x01auth=Bearer bob\x01\x01", b"\x01"),
    }
    async with sasl_server(max_reauth_ms=60_000) as server:
        server.sasl["CLIENTS"].failure_delay_s = 0
        for number in range(30):
            async with peer(server) as client:
                await log_in_by(client, mechanism)
                (connection,) = server.connections
                client.request(SaslHandshakeRequest(mechanism=mechanism), 1)
                for token in firsts[mechanism][: 1 + number % 2]:
                    changed = bytearray(token)
                    for _ in range(rng.randrange(4)):
                        changed[rng.randrange(len(changed))] = rng.randrange(256)
                    client.request(SaslAuthenticateRequest(auth_bytes=bytes(changed)), 2)
                client.writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(client.reader.read(), 20)
                assert connection.principal == "User:alice"
            await until(lambda: not server.connections, 20)
        async with peer(server) as honest:
            await honest.log_in()


async def log_in_by(client: Peer, mechanism: str) -> None:
    """Let Alice in."""
    assert (await client.handshake(mechanism)).error_code is ErrorCode.NONE
    scram = ScramClient(SCRAM_SHA_256, "alice", "secret", "clients")
    first = {PLAIN: GOOD, SCRAM_SHA_256: scram.first(), "OAUTHBEARER": b"n,,\x01auth=Bearer alice\x01\x01"}[mechanism]
    answer = await client.token(first)
    if mechanism == SCRAM_SHA_256:
        proof = scram.step(bytes(answer.auth_bytes))
        assert proof is not None
        answer = await client.token(proof)
    assert answer.error_code is ErrorCode.NONE


async def test_ten_megabytes_in_place_of_a_token_are_not_read() -> None:
    async with sasl_server() as server:
        server.sasl["CLIENTS"].failure_delay_s = 0
        for is_begun in (False, True):
            async with peer(server) as client:
                if is_begun:
                    await client.handshake()
                client.writer.write(struct.pack(">i", 10_000_000))
                with contextlib.suppress(ConnectionError):
                    for _ in range(160):
                        client.writer.write(bytes(1 << 16))
                        await asyncio.wait_for(client.writer.drain(), 20)
                assert await client.is_closed(20)
            async with peer(server) as honest:
                await honest.log_in()


@pytest.mark.slow
async def test_many_wrong_passwords_leave_few_lines_and_hold_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async with sasl_server() as server:

        async def guess() -> None:
            async with peer(server) as client:
                await client.handshake()
                assert (await client.token(WRONG)).error_code is ErrorCode.SASL_AUTHENTICATION_FAILED

        guesses = asyncio.gather(*(guess() for _ in range(100)))
        async with peer(server) as honest:
            await honest.log_in()
        await guesses
    lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert any("login refused: PLAIN: wrong password or unknown user 'alice'" in line for line in lines)
    assert not any(base64.b64encode(WRONG).decode() in line or "wrong'" in line for line in lines)

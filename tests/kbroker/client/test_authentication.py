"""A client logs in, again before its login is over, and hears at once when it may not."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.error import URLError

import pytest

from kbroker.client import authentication
from kbroker.client.authentication import conversation_of, pause_s
from kbroker.client.connection import Connection
from kbroker.client.errors import (
    IllegalSaslStateError,
    LoginFailed,
    NotConnected,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from kbroker.client.plain_connection import PlainConnection
from kbroker.client.security import Security
from kbroker.network.authentication import Mechanism
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.messages.security import SaslHandshakeRequest, SaslHandshakeResponse
from kbroker.security.exchange import SCRAM_SHA_256, Identity
from kbroker.security.scram import KnownUser, ScramServer
from tests.kbroker.network.serving import serving
from tests.kbroker.network.test_authentication import CREDENTIAL, sasl_server


def settings(password: str = "secret", mechanism: str = "SCRAM-SHA-256", **more: Any) -> Security:
    who: dict[str, Any] = {} if mechanism == "OAUTHBEARER" else {"sasl_username": "alice", "sasl_password": password}
    return Security(security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, **who, **more)


TOKEN = settings(mechanism="OAUTHBEARER", sasl_oauth_token_provider=lambda: "alice")
ALL = [settings(), settings(mechanism="PLAIN"), TOKEN]


@asynccontextmanager
async def connected(server: Any, security: Security) -> AsyncIterator[Connection]:
    connection = await Connection.open("127.0.0.1", server.ports["CLIENTS"], timeout=20, security=security)
    try:
        yield connection
    finally:
        await connection.close()


async def versions(connection: Connection) -> Any:
    return await connection.request(ApiVersionsRequest(), 0, timeout=20)


async def in_a_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work)


@pytest.mark.parametrize("security", ALL)
async def test_an_awaiting_and_a_blocking_client_log_in_with_each_mechanism(security: Security) -> None:
    async with sasl_server() as server:
        async with connected(server, security) as connection:
            assert (await versions(connection)).error_code is ErrorCode.NONE
            assert [each.principal for each in server.connections] == ["User:alice"]

        def block() -> Any:
            plain = PlainConnection("127.0.0.1", server.ports["CLIENTS"], client_id="x", timeout=20, security=security)
            try:
                return plain.request(ApiVersionsRequest(), 0)
            finally:
                plain.close()

        assert (await in_a_thread(block)).error_code is ErrorCode.NONE


async def test_a_wrong_password_is_an_error_at_once_that_names_user_and_mechanism() -> None:
    async with sasl_server() as server:
        security = settings("hunter2")
        with pytest.raises(SaslAuthenticationFailedError, match=r"user 'alice' with SCRAM-SHA-256 refused") as caught:
            async with connected(server, security):
                pass
        assert "hunter2" not in str(caught.value)
        assert isinstance(caught.value, LoginFailed)
        port = server.ports["CLIENTS"]
        with pytest.raises(LoginFailed):
            await in_a_thread(lambda: PlainConnection("127.0.0.1", port, client_id="x", timeout=20, security=security))


async def test_a_mechanism_that_is_not_offered_names_those_that_are() -> None:
    async with sasl_server() as server:
        with pytest.raises(
            UnsupportedSaslMechanismError, match="SCRAM-SHA-512 is not offered, only PLAIN, SCRAM-SHA-256"
        ):
            async with connected(server, settings(mechanism="SCRAM-SHA-512")):
                pass


async def test_a_listener_without_logins_is_told_apart() -> None:
    conversation = conversation_of(settings(), "there")
    conversation.send(None)
    exchange = authentication.begin(settings(), "there")
    assert isinstance(conversation.send(exchange), SaslHandshakeRequest)
    with pytest.raises(IllegalSaslStateError, match="wants no login"):
        conversation.send(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[]))


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_a_server_that_does_not_know_the_password_is_not_talked_to(is_blocking: bool) -> None:
    real = KnownUser(CREDENTIAL, Identity("alice"))
    false = KnownUser(replace(CREDENTIAL, server_key=b"guess"), Identity("alice"))
    async with sasl_server() as server:
        for user in (real, false):
            mechanism = Mechanism(partial(ScramServer, SCRAM_SHA_256, lambda *asked, user=user: user, "nonce"))
            server.sasl["CLIENTS"].mechanisms = {SCRAM_SHA_256: mechanism}
            port = server.ports["CLIENTS"]
            with nullcontext() if user is real else pytest.raises(LoginFailed, match="does not know the password"):
                if is_blocking:
                    make = partial(PlainConnection, "127.0.0.1", port, client_id="x", timeout=20, security=settings())
                    (await in_a_thread(make)).close()
                else:
                    await (await Connection.open("127.0.0.1", port, timeout=20, security=settings())).close()


async def test_a_function_without_a_token_is_an_error_at_once() -> None:
    def nothing() -> str:
        raise RuntimeError("the door is shut")

    def refuse() -> str:
        raise PermissionError("the door is shut")

    def no_file() -> str:
        raise FileNotFoundError("the door is shut")

    async with sasl_server() as server:
        for provider in (nothing, refuse, no_file, lambda: 7, lambda: sys.exit("the door is shut")):
            security = settings(mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider)
            with pytest.raises(LoginFailed, match=r"the door is shut|no text"):
                async with connected(server, security):
                    pass


@pytest.mark.parametrize("reason", [NotConnected("no answer"), TimeoutError("no answer"), URLError("no answer")])
async def test_a_function_for_tokens_that_is_away_is_asked_again_by_whoever_connects_again(reason: OSError) -> None:
    outcomes: list[OSError | None] = [reason, reason, None, None]

    def provider() -> str:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return "alice"

    async with sasl_server() as server:
        security = settings(mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider)
        port = server.ports["CLIENTS"]
        make = partial(PlainConnection, "127.0.0.1", port, client_id="x", timeout=20, security=security)
        with pytest.raises(NotConnected, match=rf"no token to log in to 127\.0\.0\.1:{port} .*no answer"):
            await in_a_thread(make)
        with pytest.raises(NotConnected, match=r"no token to log in .*no answer"):
            async with connected(server, security):
                pass
        async with connected(server, security) as connection:
            assert (await versions(connection)).error_code is ErrorCode.NONE
        (await in_a_thread(make)).close()


async def test_the_loop_goes_on_while_a_token_is_waited_for() -> None:
    waiting, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        waiting.set()
        assert go_on.wait(20)
        return "alice"

    async with sasl_server() as server:
        security = settings(mechanism="OAUTHBEARER", sasl_oauth_token_provider=slow)
        opening = asyncio.ensure_future(
            Connection.open("127.0.0.1", server.ports["CLIENTS"], timeout=20, security=security)
        )
        await in_a_thread(lambda: waiting.wait(20))
        go_on.set()
        await (await opening).close()


def test_the_next_login_comes_near_the_end_of_the_last_ones_life() -> None:
    pauses = [pause_s(10_000) for _ in range(200)]
    assert min(pauses) >= 8.5
    assert max(pauses) <= 9.5
    assert max(pauses) - min(pauses) > 0.1
    assert pause_s(0) == 0


@pytest.mark.slow
async def test_a_connection_in_use_logs_in_again_and_loses_no_request() -> None:
    async with sasl_server(max_reauth_ms=1_500) as server, connected(server, settings()) as connection:
        (served,) = server.connections
        first = served._dispatch._ends_at  # type: ignore[attr-defined]
        deadline = time.monotonic() + 30
        while served._dispatch._ends_at == first:  # type: ignore[attr-defined]
            answers = await asyncio.gather(*(versions(connection) for _ in range(5)))
            assert all(answer.error_code is ErrorCode.NONE for answer in answers)
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert (await versions(connection)).error_code is ErrorCode.NONE
        assert list(server.connections) == [served]


async def test_a_blocking_connection_logs_in_again_and_keeps_what_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sasl_server(max_reauth_ms=600_000) as server:
        port = server.ports["CLIENTS"]

        def block() -> bool:
            plain = PlainConnection("127.0.0.1", port, client_id="x", timeout=20, security=settings())
            try:
                plain.send(ApiVersionsRequest(), version=0)
                plain.send(ApiVersionsRequest(), version=0)
                plain._login_ends = 0.0
                plain.send(ApiVersionsRequest(), version=0)
                return all(plain.receive().error_code is ErrorCode.NONE for _ in range(3)) and plain._login_ends > 0
            finally:
                plain.close()

        assert await in_a_thread(block)


async def test_a_second_login_that_fails_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sasl_server(max_reauth_ms=600_000) as server, connected(server, settings()) as connection:
        connection._begin_login(settings("changed"))
        waiting = asyncio.gather(*(versions(connection) for _ in range(3)), return_exceptions=True)
        async with asyncio.timeout(20):
            for failure in await waiting:
                assert isinstance(failure, LoginFailed | NotConnected)
        assert connection.is_closed


async def test_without_a_login_nothing_is_sent_before_the_first_request() -> None:
    got: list[int] = []
    async with serving(lambda connection, frame: got.append(len(frame))) as server:
        connection = await Connection.open("127.0.0.1", server.ports["PLAINTEXT"])
        await connection.close()
    assert got == []

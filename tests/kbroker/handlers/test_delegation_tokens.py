"""Delegation tokens on a real broker: made, shown, renewed, ended, and used to log in."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbroker.client.connection import Connection
from kbroker.client.errors import LoginFailed
from kbroker.client.security import Security
from kbroker.cluster.token_store import DelegationTokens
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.dev.broker_process import BrokerProcess
from kbroker.handlers.context import RequestContext
from kbroker.handlers.delegation_tokens import _describe
from kbroker.protocol.codec import decode, encode
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.security import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from kbroker.security.authorizer import EVERYTHING
from kbroker.security.delegation_tokens import DelegationToken, TokenSettings
from kbroker.security.jaas import SCRAM_MODULE
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.asking import Ask
from tests.kbroker.token_broker import make_token_broker

Renewer = CreateDelegationTokenRequest.CreatableRenewers
Owner = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner


@pytest.fixture
def sasl_broker(make_broker: MakeBroker) -> BrokerProcess:
    broker, clients = make_token_broker(make_broker)
    broker.clients_port = clients  # type: ignore[attr-defined]
    return broker


@asynccontextmanager
async def asking_as(broker: Any, user: str, password: str = "secret", **more: Any) -> AsyncIterator[Ask]:
    settings = {"sasl_mechanism": "PLAIN", "sasl_username": user, "sasl_password": password, **more}
    security = Security(security_protocol="SASL_PLAINTEXT", **settings)
    connection = await Connection.open("127.0.0.1", broker.clients_port, timeout=20, security=security)

    async def ask(request: Any, version: int | None = None) -> Any:
        return await connection.request(request, version, timeout=20)

    try:
        yield ask
    finally:
        await connection.close()


def by_token(token: Any, mechanism: str) -> dict[str, Any]:
    password = base64.b64encode(bytes(token.hmac)).decode()
    jaas = f'{SCRAM_MODULE} required username="{token.token_id}" password="{password}" tokenauth="true";'
    return {"sasl_mechanism": mechanism, "sasl_jaas_config": jaas, "sasl_username": None, "sasl_password": None}


async def listed(ask: Ask, *owners: str) -> list[str]:
    wanted = [Owner(principal_type="User", principal_name=name) for name in owners] or None
    answer = await ask(DescribeDelegationTokenRequest(owners=wanted))
    assert answer.error_code is ErrorCode.NONE
    return [token.token_id for token in answer.tokens]


async def test_a_token_is_made_shown_renewed_used_and_ended(sasl_broker: BrokerProcess) -> None:
    renewers = [Renewer(principal_type="User", principal_name="bob")]
    async with asking_as(sasl_broker, "alice") as alice, asking_as(sasl_broker, "bob") as bob:
        token = await alice(CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=100_000))
        assert (token.error_code, token.principal_name, len(token.hmac)) == (ErrorCode.NONE, "alice", 64)
        assert token.max_timestamp_ms - token.issue_timestamp_ms == 100_000
        for owners, there in (((), True), (("alice",), True), (("bob",), True), (("eve",), False)):
            assert await listed(alice, *owners) == [token.token_id] * there
        for version in (1, 2, 3):
            (shown,) = (await alice(DescribeDelegationTokenRequest(owners=None), version)).tokens
            assert shown.token_requester_principal_name == ("alice" if version == 3 else "")
            assert [each.principal_name for each in shown.renewers] == ["bob"]
        answer = await alice(DescribeDelegationTokenRequest(owners=[]))
        assert answer.tokens == []
        renewed = await bob(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=50_000))
        assert renewed.error_code is ErrorCode.NONE
        assert renewed.expiry_timestamp_ms <= token.max_timestamp_ms
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            async with asking_as(sasl_broker, "", **by_token(token, mechanism)) as with_token:
                refused = await with_token(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1))
                assert refused.error_code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                assert (refused.token_id, refused.hmac, refused.expiry_timestamp_ms) == ("", b"", -1)
                assert refused.principal_name == "alice"
        async with asking_as(sasl_broker, "eve") as eve:
            stolen = await eve(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))
            assert stolen.error_code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        ended = await bob(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))
        assert ended.error_code is ErrorCode.NONE
        gone = await alice(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1))
        assert gone.error_code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with pytest.raises(LoginFailed):
        async with asking_as(sasl_broker, "", **by_token(token, "SCRAM-SHA-256")):
            pass
    assert base64.b64encode(bytes(token.hmac)).decode() not in sasl_broker.log_file.read_text()


async def test_a_renewer_is_a_user_and_nothing_else(sasl_broker: BrokerProcess) -> None:
    group = [Renewer(principal_type="Group", principal_name="x")]
    async with asking_as(sasl_broker, "alice") as alice:
        answer = await alice(CreateDelegationTokenRequest(renewers=group, max_lifetime_ms=-1))
        assert answer.error_code is ErrorCode.INVALID_PRINCIPAL_TYPE


@pytest.mark.parametrize("kind", ["Group", ""])
async def test_who_owns_a_token_is_a_user_as_whoever_logs_in_by_it_is_one(
    sasl_broker: BrokerProcess, kind: str
) -> None:
    owner = {"owner_principal_type": kind, "owner_principal_name": "bob"}
    async with asking_as(sasl_broker, "alice") as alice:
        answer = await alice(CreateDelegationTokenRequest(**owner, renewers=[], max_lifetime_ms=-1))
        assert (answer.error_code, bytes(answer.hmac)) == (ErrorCode.INVALID_PRINCIPAL_TYPE, b"")


async def test_whoever_has_not_logged_in_gets_no_token(ask: Ask) -> None:
    not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    for request in (
        CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
        RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
        ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
        DescribeDelegationTokenRequest(owners=None),
    ):
        for version in (1, 2):
            assert (await ask(request, version)).error_code is not_allowed


def test_many_tokens_and_many_owners_are_looked_at_in_steps() -> None:
    tokens = DelegationTokens(cast(ZooKeeper, None), TokenSettings("key"), lambda: False)
    for number in range(300):
        tokens._take(DelegationToken(f"t{number}", f"User:u{number}", "User:u0", (), 0, 9, 9))
    ctx = cast(RequestContext, SimpleNamespace(authority=EVERYTHING, principal="User:x", api_version=3))
    owners = [Owner(principal_type="User", principal_name=f"u{number}") for number in range(200, 700)]
    steps, found = 0, _describe(ctx, tokens, DescribeDelegationTokenRequest(owners=owners))
    while True:
        try:
            next(found)
        except StopIteration as done:
            answer = done.value
            break
        steps += 1
    assert steps == 500 + 300
    told = decode(DescribeDelegationTokenResponse, encode(answer, 3), 3)
    assert [token.token_id for token in told.tokens] == [f"t{number}" for number in range(200, 300)]

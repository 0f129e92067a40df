"""Delegation tokens in ZooKeeper: two brokers that tell each other, and what Kafka writes."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import time_ns
from typing import Any

import pytest

from kbroker.cluster.token_store import TOKENS, DelegationTokens, decode_token, encode_token, token_settings
from kbroker.config.broker_config import resolve_broker_config
from kbroker.controller.znodes import MalformedZnode
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.security.delegation_tokens import DelegationToken, TokenSettings
from kbroker.security.exchange import SCRAM_SHA_256, Identity
from kbroker.security.scram import KnownUser
from tests.fixtures.zookeeper import ZooKeeperAddress

SETTINGS = TokenSettings("secret")
TOKEN = DelegationToken("id", "User:a b", "User:root", ("User:ü",), 1, 2, 3)


def now_ms() -> int:
    return time_ns() // 1_000_000


@asynccontextmanager
async def stores(address: ZooKeeperAddress, count: int) -> AsyncIterator[list[DelegationTokens]]:
    made: list[tuple[ZooKeeper, DelegationTokens]] = []
    try:
        for number in range(count):
            zookeeper = ZooKeeper(address.connect_string, 10_000, 10_000, None)
            await zookeeper.connect()
            tokens = DelegationTokens(zookeeper, SETTINGS, lambda number=number: number == 0)  # type: ignore[misc]
            made.append((zookeeper, tokens))
            await tokens.start()
        yield [tokens for _, tokens in made]
    finally:
        for zookeeper, tokens in made:
            await tokens.close()
            await zookeeper.close()


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def found(tokens: DelegationTokens, token_id: str) -> KnownUser | None:
    user = tokens.find(SCRAM_SHA_256, token_id)
    return await user if isinstance(user, Awaitable) else user


async def test_what_one_broker_does_the_others_hear(zookeeper: ZooKeeperAddress) -> None:
    async with stores(zookeeper, 2) as (first, second):
        token = await first.create("User:alice", "User:alice", ("User:bob",), -1, now_ms())
        await until(lambda: second.all() == [token])
        secret = SETTINGS.hmac_of(token.token_id)
        user = await found(second, token.token_id)
        assert user is not None
        assert user.identity == Identity("alice", is_token=True, expires_at_ms=token.expires_at_ms)
        assert await found(second, token.token_id) == user  # the same credential, not derived again
        expiry = await second.renew(secret, "User:bob", 1_000, now_ms())
        await until(lambda: first.all()[0].expires_at_ms == expiry)
        with pytest.raises(KafkaError) as caught:
            await first.renew(b"guess", "User:bob", 1_000, now_ms())
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        await first.expire(secret, "User:alice", -1, now_ms())
        await until(lambda: not second.all())
        assert await found(second, token.token_id) is None


async def test_a_token_that_is_gone_does_not_come_back_by_a_broker_that_has_not_heard_of_it(
    zookeeper: ZooKeeperAddress,
) -> None:
    async with stores(zookeeper, 2) as (first, second):
        token = await first.create("User:alice", "User:alice", ("User:bob",), -1, now_ms())
        await until(lambda: second.all() == [token])
        secret = SETTINGS.hmac_of(token.token_id)
        for change in (second.renew, second.expire):
            second._take(token)
            await first._zookeeper.delete(f"{TOKENS}/{token.token_id}")
            with pytest.raises(KafkaError, check=lambda error: error.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
                await change(secret, "User:bob", 1_000, now_ms())
            assert await first._zookeeper.children(TOKENS) == []
            assert await found(second, token.token_id) is None
            await first._zookeeper.create(f"{TOKENS}/{token.token_id}", encode_token(token))


async def test_only_the_controllers_broker_removes_what_has_expired(zookeeper: ZooKeeperAddress) -> None:
    async with stores(zookeeper, 2) as (controller, other):
        token = await other.create("User:alice", "User:alice", (), 1, now_ms() - 10)
        await until(lambda: controller.all() == [token])
        await other.remove_expired()
        assert other.all() == [token]
        await controller.remove_expired()
        await until(lambda: not other.all())


async def test_tokens_of_before_are_there_after_a_start(zookeeper: ZooKeeperAddress) -> None:
    async with stores(zookeeper, 1) as (before,):
        token = await before.create("User:alice", "User:root", (), -1, now_ms())
        data, _ = await before._zookeeper.get(f"{TOKENS}/{token.token_id}")
        assert data == encode_token(token)
    async with stores(zookeeper, 1) as (after,):
        assert after.all() == [token]


def test_what_is_written_is_kafkas_form_and_older_ones_are_read() -> None:
    assert encode_token(TOKEN) == (
        b'{"version":3,"owner":"User%3Aa%20b","tokenRequester":"User%3Aroot","renewers":["User%3A%C3%BC"],'
        b'"issueTimestamp":1,"maxTimestamp":2,"expiryTimestamp":3,"tokenId":"id"}'
    )
    assert decode_token(encode_token(TOKEN), "id") == TOKEN
    old = encode_token(TOKEN).replace(b'"version":3', b'"version":1').replace(b'"tokenRequester":"User%3Aroot",', b"")
    assert decode_token(old, "id").requester == "User:a b"
    for wrong in (b"", b"{}", b"[]", encode_token(TOKEN).replace(b":3,", b":4,")):
        with pytest.raises(MalformedZnode, match="/delegation_token/tokens/id"):
            decode_token(wrong, "id")


def test_without_a_secret_there_are_no_tokens() -> None:
    assert token_settings(resolve_broker_config({})) is None
    given = token_settings(resolve_broker_config({"delegation.token.master.key": "x"}))
    assert given == TokenSettings("x")

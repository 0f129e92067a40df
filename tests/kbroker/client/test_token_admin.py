"""Delegation tokens, made by the clients of this package and used to log in by each kind of them."""

import time
from base64 import b64encode

import pytest

from kbroker import Admin, Consumer, Producer, aio
from kbroker.client.errors import (
    ConfigurationError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    DelegationTokenRequestNotAllowedError,
    LoginFailed,
)
from kbroker.client.plain_cluster import PlainCluster
from kbroker.security.jaas import SCRAM_MODULE
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.token_broker import login_of, make_token_broker

HOUR_MS = 3_600_000


def seconds_from_now(timestamp_ms: int) -> float:
    return timestamp_ms / 1000 - time.time()


async def test_a_token_logs_in_all_kinds_of_clients_until_it_ends(make_broker: MakeBroker, topic_name: str) -> None:
    _, port = make_token_broker(make_broker)
    bootstrap = f"127.0.0.1:{port}"
    async with aio.Admin(bootstrap, **login_of("alice")) as alice:
        await alice.create_topic(topic_name, 1, 1)
        token = await alice.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=2 * HOUR_MS)
        assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))
        assert token.max_timestamp - token.issue_timestamp == 2 * HOUR_MS
        assert await alice.describe_delegation_tokens() == [token]
        assert await alice.describe_delegation_tokens(["User:alice"]) == [token]
        assert await alice.describe_delegation_tokens(["User:eve"]) == []
        assert b64encode(token.hmac).decode() not in repr(token)
        by_token = {"security_protocol": "SASL_PLAINTEXT", **token.login}
        await _write_and_read(bootstrap, topic_name, by_token)
        jaas = f'{SCRAM_MODULE} required username="{token.token_id}" password="{b64encode(token.hmac).decode()}"'
        spark = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
        options = {**spark, "sasl.jaas.config": f"{jaas} tokenauth=true;"}
        with PlainCluster(bootstrap, {f"kafka.{name}": value for name, value in options.items()}) as cluster:
            assert cluster.partitions([topic_name]) == {(topic_name, 0)}
        async with aio.Admin(bootstrap, **login_of("bob")) as bob:
            renewed = await bob.renew_delegation_token(token.hmac, HOUR_MS)
            assert 0 < seconds_from_now(renewed) <= 3600
            assert seconds_from_now(await bob.expire_delegation_token(token.hmac)) <= 0
        with pytest.raises(DelegationTokenNotFoundError):
            await alice.renew_delegation_token(token.hmac)
    with pytest.raises(LoginFailed, match=token.token_id) as caught:
        async with aio.Admin(bootstrap, **by_token) as nobody:
            await nobody.list_topics()
    assert token.login["sasl_password"] not in str(caught.value)


async def _write_and_read(bootstrap: str, topic: str, login: dict[str, str]) -> None:
    async with aio.Producer(bootstrap, **login) as producer:
        await producer.send(topic, b"asyncio")
    async with aio.Admin(bootstrap, **login) as admin:
        with pytest.raises(DelegationTokenRequestNotAllowedError, match="not by a token"):
            await admin.create_delegation_token()


def test_who_may_not_is_told_what_is_missing(make_broker: MakeBroker, topic_name: str) -> None:
    broker, port = make_token_broker(make_broker)
    bootstrap = f"127.0.0.1:{port}"
    with Admin(bootstrap, **login_of("alice")) as alice, Admin(bootstrap, **login_of("eve")) as eve:
        alice.create_topic(topic_name, 1, 1)
        token = alice.create_delegation_token()
        for change in (eve.renew_delegation_token, eve.expire_delegation_token):
            with pytest.raises(DelegationTokenOwnerMismatchError, match="owner and its renewers"):
                change(token.hmac)
        with pytest.raises(ConfigurationError, match="'bob' is no principal"):
            alice.create_delegation_token(renewers=["bob"])
        login = {"security_protocol": "SASL_PLAINTEXT", **token.login}
        with Producer(bootstrap, **login) as producer:
            producer.send(topic_name, b"blocking").result(30)
        with Consumer(bootstrap, auto_offset_reset="earliest", **login) as consumer:
            consumer.subscribe([topic_name])
            assert next(iter(consumer)).value == b"blocking"
    with Admin(broker.bootstrap) as anonymous, pytest.raises(DelegationTokenRequestNotAllowedError):
        anonymous.create_delegation_token()

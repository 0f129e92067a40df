"""Delegation tokens: who may do what, and for how long."""

import base64
from collections.abc import Callable

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.security.delegation_tokens import (
    DelegationToken,
    TokenSettings,
    create,
    expire,
    new_token_id,
    renew,
    token_credential,
    token_password,
)
from kbroker.security.exchange import SCRAM_SHA_512, Identity
from kbroker.security.scram import KnownUser, ScramClient, ScramServer

SETTINGS = TokenSettings("secret", max_lifetime_ms=1_000, expiry_time_ms=100)
TOKEN = create(SETTINGS, "id", "User:alice", "User:root", ("User:bob",), -1, 10_000)


def test_a_new_token_ends_with_the_longest_life_and_expires_before() -> None:
    assert DelegationToken("id", "User:alice", "User:root", ("User:bob",), 10_000, 11_000, 10_100) == TOKEN
    assert create(SETTINGS, "id", "a", "a", (), 50, 10_000).expires_at_ms == 10_050
    assert create(SETTINGS, "id", "a", "a", (), 5_000, 10_000).ends_at_ms == 11_000


def test_owner_and_renewers_renew_but_never_beyond_the_end() -> None:
    assert renew(SETTINGS, TOKEN, "User:bob", -1, 10_050).expires_at_ms == 10_150
    assert renew(SETTINGS, TOKEN, "User:alice", 5_000, 10_050).expires_at_ms == 11_000
    assert expire(TOKEN, "User:alice", 20, 10_050).expires_at_ms == 10_070  # type: ignore[union-attr]
    assert expire(TOKEN, "User:bob", -1, 99_999) is None  # now, though it is over


Change = Callable[[], object]


@pytest.mark.parametrize("principal", ["User:root", "User:eve"])
def test_nobody_else_changes_a_token(principal: str) -> None:
    changes: tuple[Change, Change] = (
        lambda: renew(SETTINGS, TOKEN, principal, -1, 10_050),
        lambda: expire(TOKEN, principal, -1, 10_050),
    )
    for change in changes:
        with pytest.raises(KafkaError) as caught:
            change()
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_what_is_over_cannot_be_renewed() -> None:
    changes: tuple[Change, Change] = (
        lambda: renew(SETTINGS, TOKEN, "User:bob", -1, 10_101),
        lambda: expire(TOKEN, "User:bob", 5, 10_101),
    )
    for change in changes:
        with pytest.raises(KafkaError) as caught:
            change()
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_a_token_logs_in_with_the_base64_of_its_secret() -> None:
    secret = SETTINGS.hmac_of("id")
    assert len(secret) == 64
    user = KnownUser(token_credential(SCRAM_SHA_512, secret, b"salt"), Identity("alice", is_token=True))
    server = ScramServer(SCRAM_SHA_512, lambda name, is_token: user if is_token and name == "id" else None, "s")
    client = ScramClient(SCRAM_SHA_512, "id", base64.b64encode(secret).decode(), "c", {"tokenauth": "true"})
    answer = server.step(client.first())
    assert isinstance(answer, bytes)
    server.step(client.step(answer) or b"")
    assert server.identity == Identity("alice", is_token=True)
    assert token_password(secret) == base64.b64encode(secret).decode()


def test_ids_are_kafkas_and_secrets_are_not_shown() -> None:
    assert new_token_id(bytes(16)) == "A" * 22
    assert "secret=" not in repr(SETTINGS)

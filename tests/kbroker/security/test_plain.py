"""SASL/PLAIN."""

import pytest

from kbroker.security.exchange import OTHER_AUTHORIZATION_ID, AuthenticationFailure, Identity
from kbroker.security.plain import WRONG, PlainClient, PlainServer

PASSWORDS = {"alice": "pässword", "empty": ""}


def test_user_and_password_are_accepted() -> None:
    server, client = PlainServer(PASSWORDS), PlainClient("alice", "pässword")
    assert server.step(client.first()) == b""
    assert server.identity == Identity("alice")
    client.step(b"")
    assert client.is_complete


def test_the_own_name_may_be_asked_for() -> None:
    server = PlainServer(PASSWORDS)
    server.step("alice\0alice\0pässword".encode())
    assert server.identity == Identity("alice")


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0alice\0wrong", WRONG),
        (b"\0bob\0wrong", WRONG),
        (b"\0empty\0x", WRONG),
        (b"\0alice\0\xff", WRONG),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (b"alice\0x", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0a\0b\0c", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        ("bob\0alice\0pässword".encode(), OTHER_AUTHORIZATION_ID),
    ],
)
def test_a_refusal_says_what_kafka_says(token: bytes, told: str) -> None:
    server = PlainServer(PASSWORDS)
    with pytest.raises(AuthenticationFailure) as caught:
        server.step(token)
    assert caught.value.told == told
    assert server.identity is None

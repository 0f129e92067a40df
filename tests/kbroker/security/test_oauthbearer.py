"""SASL/OAUTHBEARER: how a token travels."""

import pytest

from kbroker.security.exchange import AuthenticationFailure, Identity
from kbroker.security.oauthbearer import MOST_PAIRS, OAuthBearerClient, OAuthBearerServer, TokenRefused, ValidToken


def validate(token: str) -> ValidToken:
    if token == "good":
        return ValidToken("alice", 5_000)
    raise TokenRefused("no", ("a", 'b"') if token == "narrow" else None)


def test_a_good_token_logs_in_until_it_expires() -> None:
    server, client = OAuthBearerServer(validate), OAuthBearerClient("good", {"traceId": "7"})
    assert client.first() == b"n,,\x01auth=Bearer good\x01traceId=7\x01\x01"
    assert server.step(client.first()) == b""
    assert server.identity == Identity("alice", expires_at_ms=5_000)
    client.step(b"")
    assert client.is_complete


def test_a_bad_token_is_told_first_and_refused_then() -> None:
    server, client = OAuthBearerServer(validate), OAuthBearerClient("bad")
    said = server.step(client.first())
    assert said == b'{"status":"invalid_token"}'
    acknowledged = client.step(said)
    assert acknowledged == b"\x01"
    assert server.identity is None
    with pytest.raises(AuthenticationFailure) as caught:
        server.step(acknowledged)
    assert caught.value.told == '{"status":"invalid_token"}'
    assert not client.is_complete


def test_what_scope_is_missing_is_told() -> None:
    server = OAuthBearerServer(validate)
    assert server.step(b"n,,\x01auth=bearer narrow\x01\x01") == rb'{"status":"insufficient_scope", "scope":"[a, b\"]"}'


@pytest.mark.parametrize(
    "first",
    [b"", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Basic good\x01\x01", b"\xff", b"y,,\x01auth=Bearer good\x01\x01"],
)
def test_a_first_message_without_a_bearer_token_is_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationFailure) as caught:
        OAuthBearerServer(validate).step(first)
    assert caught.value.told is None


def test_a_first_message_has_so_many_pairs_at_most() -> None:
    """Each takes time, and whoever sends them has not logged in yet."""
    token = b"n,,\x01auth=Bearer good\x01"
    assert OAuthBearerServer(validate).step(token + b"a=b\x01" * (MOST_PAIRS - 1) + b"\x01") == b""
    with pytest.raises(AuthenticationFailure, match="none of OAUTHBEARER's"):
        OAuthBearerServer(validate).step(token + b"a=b\x01" * MOST_PAIRS + b"\x01")


def test_an_authorization_id_has_to_be_the_principal() -> None:
    server = OAuthBearerServer(validate)
    server.step(b"n,a=alice,\x01auth=Bearer good\x01\x01")
    assert server.identity is not None
    with pytest.raises(AuthenticationFailure) as caught:
        OAuthBearerServer(validate).step(b"n,a=bob,\x01auth=Bearer good\x01\x01")
    assert caught.value.told is not None
    assert "different from the token's principal name (alice)" in caught.value.told


def test_a_token_that_cannot_travel_is_refused_here() -> None:
    with pytest.raises(AuthenticationFailure):
        OAuthBearerClient("a\x01b")

"""What all mechanisms share."""

import collections
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.security.exchange import SCRAM_SHA_256, AuthenticationFailure, Identity
from kbroker.security.oauthbearer import OAuthBearerServer, TokenRefused
from kbroker.security.plain import PlainServer
from kbroker.security.scram import KnownUser, ScramClient, ScramServer, credential_of, salted_password
from kbroker.security.signed_tokens import SignedValidator
from kbroker.security.tokens import UnsecuredValidator, unsecured_token

NOW_MS = 1_000_000
CREDENTIAL = credential_of(SCRAM_SHA_256, salted_password(SCRAM_SHA_256, "secret", b"salt", 4096), b"salt", 4096)
ALICE = KnownUser(CREDENTIAL, Identity("alice"))
SERVERS: dict[str, Callable[[], Any]] = {
    "PLAIN": lambda: PlainServer({"alice": "secret"}),
    "SCRAM-SHA-256": lambda: ScramServer(SCRAM_SHA_256, lambda name, _: ALICE if name == "alice" else None, "servers"),
    "OAUTHBEARER": lambda: OAuthBearerServer(lambda token: UnsecuredValidator().validate(token, NOW_MS)),
    "OAUTHBEARER, signed": lambda: OAuthBearerServer(lambda token: SignedValidator().validate(token, [], NOW_MS)),
}
HONEST = (
    b"\0alice\0guessed",
    b"n,,n=alice,r=clients",
    b"n,a=alice,n=alice,r=clients,tokenauth=true",
    b"c=biws,r=clientsservers,p=AAAA",
    b"n,,\x01auth=Bearer " + unsecured_token({"sub": "alice", "exp": 999, "iat": 900}).encode() + b"\x01\x01",
    b"n,,\x01auth=Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6ImsxIn0.eyJzdWIiOiJhIn0.AAAA\x01\x01",
    b"\x01",
)


@st.composite
def tokens(draw: st.DrawFn) -> bytes:
    """Random bytes, or an honest message with some of them changed, doubled or cut off."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=200))
    token = bytearray(draw(st.sampled_from(HONEST)))
    for place, value in draw(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4)):
        token[place % len(token) : place % len(token) + draw(st.integers(0, 2))] = bytes([value])
    return bytes(token[: draw(st.integers(0, 400))])


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", SERVERS)
@settings(max_examples=60, deadline=None)
@given(st.lists(tokens(), min_size=1, max_size=4))
def test_whatever_a_stranger_sends_is_refused_by_name_or_asked_on(mechanism: str, sent: list[bytes]) -> None:
    server = SERVERS[mechanism]()
    refused = ""
    for token in sent:
        try:
            assert isinstance(server.step(token), bytes)
        except AuthenticationFailure as failure:
            refused = str(failure)
            break
    assert "\n" not in refused
    assert "secret" not in refused
    assert server.identity is None


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60) | st.lists(st.text("AZaz09-_=", max_size=40), min_size=2, max_size=4).map(".".join))
def test_whatever_is_no_token_is_refused_as_one(text: str) -> None:
    with pytest.raises(TokenRefused):
        UnsecuredValidator().validate(text, NOW_MS)
    with pytest.raises(TokenRefused):
        SignedValidator().validate(text, [], NOW_MS)


BEGUN: dict[str, tuple[bytes, ...]] = {
    "SCRAM-SHA-256": (b"n,,n=alice,r=clients",),
    "OAUTHBEARER": (b"n,,\x01auth=Bearer e30.e30.\x01\x01",),
    "OAUTHBEARER, signed": (b"n,,\x01auth=Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6ImsxIn0.eyJzdWIiOiJhIn0.AAAA\x01\x01",),
}
"""What a stranger sends first, rightly: the server then waits for the next message."""


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", BEGUN)
@settings(max_examples=100, deadline=None)
@given(st.lists(tokens(), min_size=1, max_size=3))
def test_whatever_a_stranger_goes_on_with_is_refused(mechanism: str, sent: list[bytes]) -> None:
    server = SERVERS[mechanism]()
    for token in BEGUN[mechanism]:
        assert server.step(token)
    with pytest.raises(AuthenticationFailure) as refused:
        collections.deque(map(server.step, sent), maxlen=0)
    assert server.identity is None
    assert "secret" not in str(refused.value)
    assert "secret" not in (refused.value.told or "")


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_of_a_proof_no_byte_may_be_another(data: st.DataObject) -> None:
    """Whoever has overheard a login, or guesses near it, changes what is proved or what is signed."""
    server = SERVERS["SCRAM-SHA-256"]()
    alice = ScramClient(SCRAM_SHA_256, "alice", "secret", "clients")
    proof = alice.step(server.step(alice.first()))
    assert proof is not None
    place = data.draw(st.integers(0, len(proof) - 3))  # two bits of the last but one stand for nothing
    changed = bytearray(proof)
    changed[place] = data.draw(st.integers(1, 127).filter(lambda value: value != proof[place]))
    with pytest.raises(AuthenticationFailure):
        server.step(bytes(changed))
    assert server.identity is None

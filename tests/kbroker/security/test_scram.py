"""SCRAM: the RFCs' own examples, each step that can be refused, and a library of others as the peer."""

import base64
import hashlib
import hmac
import random
from typing import Any

import pytest
import scramp

from kbroker.security.exchange import (
    OTHER_AUTHORIZATION_ID,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    AuthenticationFailure,
    Identity,
)
from kbroker.security.scram import (
    LONGEST_MESSAGE,
    KnownUser,
    ScramClient,
    ScramCredential,
    ScramServer,
    credential_of,
    decode_credential,
    encode_credential,
    salted_password,
)

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_7677 = (
    b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


def credential(mechanism: str = SCRAM_SHA_256, password: str = "pencil", iterations: int = 4096) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password, SALT, iterations), SALT, iterations)


def server_of(known: ScramCredential, mechanism: str = SCRAM_SHA_256, name: str = "user") -> ScramServer:
    user = KnownUser(known, Identity(name))
    return ScramServer(
        mechanism, lambda asked, is_token: user if asked == name and not is_token else None, SERVER_NONCE
    )


def step(server: ScramServer, token: bytes) -> bytes:
    answer = server.step(token)
    assert isinstance(answer, bytes)
    return answer


def test_the_example_of_rfc_7677_comes_out_byte_for_byte() -> None:
    client, server = ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE), server_of(credential())
    assert client.first() == RFC_7677[0]
    assert step(server, RFC_7677[0]) == RFC_7677[1]
    assert client.step(RFC_7677[1]) == RFC_7677[2]
    assert step(server, RFC_7677[2]) == RFC_7677[3]
    assert server.identity == Identity("user")
    assert client.step(RFC_7677[3]) is None
    assert client.is_complete


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_both_sides_understand_a_library_of_others(mechanism: str) -> None:
    known = credential(mechanism)
    theirs: Any = scramp.ScramClient([mechanism], "user", "pencil")
    server = server_of(known, mechanism)
    theirs.set_server_first(step(server, theirs.get_client_first().encode()).decode())
    theirs.set_server_final(step(server, theirs.get_client_final().encode()).decode())
    assert server.identity == Identity("user")

    other: Any = scramp.ScramMechanism(mechanism)
    auth = other.make_auth_info("pencil", iteration_count=4096, salt=SALT)
    peer = other.make_server(lambda name: auth)
    client = ScramClient(mechanism, "user", "pencil", CLIENT_NONCE)
    peer.set_client_first(client.first().decode())
    answer = client.step(peer.get_server_first().encode())
    assert answer is not None
    peer.set_client_final(answer.decode())
    client.step(peer.get_server_final().encode())
    assert client.is_complete


def test_names_with_commas_and_equals_signs_are_escaped() -> None:
    client, server = ScramClient(SCRAM_SHA_256, "a=2C,b", "pencil", "n"), server_of(credential(), name="a=2C,b")
    assert client.first() == b"n,,n=a=3D2C=2Cb,r=n"
    step(server, client.step(step(server, client.first())) or b"")
    assert server.identity == Identity("a=2C,b")


def test_what_stands_in_zookeeper_is_kafkas_text() -> None:
    known = credential()
    text = encode_credential(known)
    assert text.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert decode_credential(",".join(reversed(text.split(",")))) == known
    for wrong in (
        "",
        "salt=x",
        text.replace("salt", "slat"),
        text + ",a=b",
        text.replace("4096", "many"),
        "a=%" + text,
    ):
        with pytest.raises(ValueError, match="SCRAM credential") as caught:
            decode_credential(wrong)
        assert not wrong or wrong not in str(caught.value)
    assert base64.b64encode(known.stored_key).decode() not in repr(known)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff",
        b"y,,n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,,n=us,er,r=x",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=user,r=a,b",
        b"n,,n=\xc3\xbc,r=x",
        b"n,,n=nobody,r=x",
        b"n,,n=user,r=x,tokenauth=true",
    ],
)
def test_a_first_message_that_is_none_or_of_nobody_is_refused(first: bytes) -> None:
    with pytest.raises(AuthenticationFailure) as caught:
        step(server_of(credential()), first)
    assert caught.value.told is None  # the general text that tells nothing


def test_a_message_that_is_far_too_long_is_not_looked_at() -> None:
    """The more of a name there is, the longer the event loop is held up, and nobody has logged in yet."""
    first = b"n,,n=user,r=nonce"
    fits = first + b"n" * (LONGEST_MESSAGE - len(first))
    assert step(server_of(credential()), fits)
    with pytest.raises(AuthenticationFailure, match=f"of {LONGEST_MESSAGE + 1} bytes"):
        step(server_of(credential()), fits + b"n")
    server = server_of(credential())
    step(server, first)
    with pytest.raises(AuthenticationFailure, match=r"bytes: .* are allowed"):
        step(server, b"c=biws,r=nonce,p=" + b"A" * LONGEST_MESSAGE)


def test_an_authorization_id_has_to_be_the_user() -> None:
    assert step(server_of(credential()), b"n,a=user,n=user,r=x")
    with pytest.raises(AuthenticationFailure) as caught:
        step(server_of(credential()), b"n,a=root,n=user,r=x")
    assert caught.value.told == OTHER_AUTHORIZATION_ID


def test_a_credential_with_few_iterations_lets_nobody_in() -> None:
    with pytest.raises(AuthenticationFailure, match="at least 4096"):
        step(server_of(credential(iterations=4095)), RFC_7677[0])


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws,p=AA==",
        RFC_7677[2].replace(b"hNlF$k0", b"hNlF$k1"),
        RFC_7677[2].replace(b"p=d", b"p=e"),
        RFC_7677[2].replace(b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"dHzb"),
        RFC_7677[2].replace(b"VQ=", b"VQ"),
    ],
)
def test_a_proof_that_does_not_hold_is_refused(final: bytes) -> None:
    server = server_of(credential())
    step(server, RFC_7677[0])
    with pytest.raises(AuthenticationFailure) as caught:
        step(server, final)
    assert server.identity is None
    assert caught.value.told is None


def test_a_client_may_say_its_own_nonce_twice_in_its_proof_as_old_librdkafka_does() -> None:
    server = server_of(credential())
    step(server, RFC_7677[0])
    unproved = RFC_7677[2].partition(b",p=")[0].replace(b"r=", f"r={CLIENT_NONCE}".encode())
    salted = salted_password(SCRAM_SHA_256, "pencil", SALT, 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signed = b",".join([RFC_7677[0].removeprefix(b"n,,"), RFC_7677[1], unproved])
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
    assert step(server, unproved + b",p=" + proof).startswith(b"v=")
    assert server.identity == Identity("user")


def test_messages_that_were_overheard_do_not_log_in_again() -> None:
    user = KnownUser(credential(), Identity("user"))
    server = ScramServer(SCRAM_SHA_256, lambda name, is_token: user, "another nonce".replace(" ", ""))
    step(server, RFC_7677[0])
    with pytest.raises(AuthenticationFailure, match="another nonce"):
        step(server, RFC_7677[2])


def test_nothing_may_follow_the_proof() -> None:
    server = server_of(credential())
    step(server, RFC_7677[0])
    step(server, RFC_7677[2])
    with pytest.raises(AuthenticationFailure):
        step(server, RFC_7677[2])


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        RFC_7677[1].replace(b"i=4096", b"i=1"),
        RFC_7677[1].replace(b"i=4096", b"i=999999999"),
    ],
)
def test_a_client_does_not_answer_a_server_that_cheats(first: bytes) -> None:
    with pytest.raises(AuthenticationFailure):
        ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE).step(first)


@pytest.mark.parametrize("final", [b"", b"e=invalid-proof", b"v=AAAA", RFC_7677[3].replace(b"v=6", b"v=7")])
def test_a_server_that_does_not_know_the_password_is_refused(final: bytes) -> None:
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", CLIENT_NONCE)
    client.step(RFC_7677[1])
    with pytest.raises(AuthenticationFailure):
        client.step(final)
    assert not client.is_complete


def test_random_bytes_are_refused_and_nothing_else_happens() -> None:
    rng = random.Random(7)
    for _ in range(2_000):
        token = bytearray(RFC_7677[0])
        for _ in range(rng.randrange(1, 5)):
            token[rng.randrange(len(token))] = rng.randrange(256)
        server = server_of(credential_of(SCRAM_SHA_256, b"x", SALT, 4096))
        for message in (bytes(token), RFC_7677[2]):
            try:
                step(server, message)
            except AuthenticationFailure:
                break
        assert server.identity is None

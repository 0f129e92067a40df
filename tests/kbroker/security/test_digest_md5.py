"""DIGEST-MD5, by the example of RFC 2831 (section 4, IMAP)."""

import pytest

from kbroker.security.digest_md5 import DigestError, DigestMd5

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'


def exchange(username: str = "chris", password: str = "secret") -> DigestMd5:
    return DigestMd5(username, password, "OA6MHXh6VqTrRk", "imap", "elwood.innosoft.com")


def test_the_answer_is_that_of_the_rfc() -> None:
    answer = exchange().answer(CHALLENGE)
    assert b"response=d388dad90d4bbd760a152321f2143af7" in answer
    assert b'username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",nc=00000001' in answer
    assert b'digest-uri="imap/elwood.innosoft.com"' in answer


def test_a_server_shows_that_it_knows_the_password() -> None:
    client = exchange()
    client.answer(CHALLENGE)
    client.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
    for wrong in (b"rspauth=" + b"0" * 32, b"", b"rspauth", b"\xff"):
        with pytest.raises(DigestError):
            client.check(wrong)


def test_nobody_is_believed_before_they_were_answered() -> None:
    with pytest.raises(DigestError):
        exchange().check(b"rspauth=")


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"nonce",
        b'nonce="x"',
        b'nonce="",algorithm=md5-sess',
        b'nonce="x",algorithm=md5-sess,qop="auth-conf"',
        b'a="',
        b"\xff\xfe",
    ],
)
def test_what_is_no_challenge_is_refused(challenge: bytes) -> None:
    with pytest.raises(DigestError):
        exchange().answer(challenge)


def test_names_are_quoted() -> None:
    assert rb'username="a\"b\\c"' in exchange('a"b\\c').answer(CHALLENGE)


def test_names_beyond_latin_letters_count_as_utf_8() -> None:
    answers = {exchange(password=each).answer(CHALLENGE) for each in ("secret", "sécret", "секрет")}
    assert len(answers) == 3

"""The keys of an identity provider: a file, an address, and one that is not there."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from kbroker.config.sasl import JwksSettings
from kbroker.network.jwks import UNKNOWN_KEY_PAUSE_S, Jwks
from kbroker.protocol.config_def import ConfigError
from kbroker.security.oauthbearer import TokenRefused
from kbroker.security.signed_tokens import SignedValidator
from tests.fixtures.streams import Serve, stream_server

OLD, NEW = (ECKey.generate_key("P-256", {"kid": name}) for name in ("old", "new"))


def document(*keys: Any) -> str:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]})


def token(key: Any) -> str:
    now = int(time.time())
    return jwt.encode({"alg": "ES256", "kid": key.kid}, {"sub": "alice", "iat": now, "exp": now + 600}, key)


class Provider:
    """Answers over http with whatever keys it has; None: it is broken."""

    def __init__(self) -> None:
        self.document: str | None = document(OLD)
        self.asked = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        body = (self.document or "").encode()
        status = b"200 OK" if self.document is not None else b"503 Busy"
        writer.write(b"HTTP/1.0 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()


@contextlib.asynccontextmanager
async def served(answer: Serve) -> AsyncIterator[str]:
    """The address of whoever answers so."""
    async with stream_server(answer) as port:
        yield f"http://127.0.0.1:{port}/keys"


@contextlib.asynccontextmanager
async def reading(answer: Serve, refresh_ms: int) -> AsyncIterator[Jwks]:
    """The keys of whoever answers so."""
    async with served(answer) as url:
        jwks = Jwks(JwksSettings(url, refresh_ms, 10, 20))
        await jwks.start()
        try:
            yield jwks
        finally:
            await jwks.close()


async def until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_a_new_key_is_found_when_a_token_names_it() -> None:
    provider = Provider()
    async with reading(provider.answer, refresh_ms=3_600_000) as jwks:
        assert jwks.validate(SignedValidator(), token(OLD)).principal == "alice"
        provider.document = document(OLD, NEW)
        with pytest.raises(TokenRefused, match="not known"):
            jwks.validate(SignedValidator(), token(NEW))
        await until(lambda: len(jwks.keys) == 2)
        assert jwks.validate(SignedValidator(), token(NEW)).principal == "alice"


async def test_a_provider_that_breaks_leaves_the_keys_of_before_and_is_asked_again() -> None:
    provider = Provider()
    async with reading(provider.answer, refresh_ms=20) as jwks:
        provider.document = None
        await until(lambda: provider.asked >= 4)
        assert jwks.validate(SignedValidator(), token(OLD)).principal == "alice"
        provider.document = document(NEW)
        await until(lambda: jwks.keys[0].kid == "new")


async def test_a_provider_that_answers_nonsense_for_a_while_is_asked_again() -> None:
    provider, nonsense = Provider(), [b"what?\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if provider.asked == 0 or not nonsense:
            await provider.answer(reader, writer)
            return
        provider.asked += 1
        writer.write(nonsense.pop())
        writer.close()

    async with reading(answer, refresh_ms=20) as jwks:
        provider.document = document(NEW)
        await until(lambda: jwks.keys[0].kid == "new")
        assert not nonsense


async def test_whoever_makes_up_names_of_keys_does_not_have_the_provider_asked_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbroker.network.jwks.LEAST_PAUSE_S", 3_000.0)
    provider = Provider()
    async with reading(provider.answer, refresh_ms=3_600_000) as jwks:
        jwks._note_unknown("made-up", time.monotonic())
        await until(lambda: provider.asked == 2)
        for number in range(30):
            jwks._note_unknown(f"made-up-{number}", time.monotonic())
            await asyncio.sleep(0.02)
        assert provider.asked == 2


async def test_a_new_key_is_found_though_somebody_makes_up_as_many_names_as_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kbroker.network.jwks.LEAST_PAUSE_S", 0.0)
    monkeypatch.setattr("kbroker.network.jwks.MOST_UNKNOWN_KEYS", 3)
    provider = Provider()
    async with reading(provider.answer, refresh_ms=3_600_000) as jwks:
        for number in range(3):
            jwks._note_unknown(f"made-up-{number}", time.monotonic())
        await until(lambda: provider.asked == 2 and not jwks._again.is_set())
        provider.document = document(OLD, NEW)
        with pytest.raises(TokenRefused, match="not known"):
            jwks.validate(SignedValidator(), token(NEW))
        await until(lambda: len(jwks.keys) == 2)
        assert len(jwks._unknown) == 3


async def test_a_key_that_cannot_be_read_this_time_is_what_it_was_before() -> None:
    provider = Provider()
    async with reading(provider.answer, refresh_ms=20) as jwks:
        garbled = {**OLD.as_dict(private=False), "x": "A"}
        provider.document = json.dumps({"keys": [garbled, NEW.as_dict(private=False)]})
        await until(lambda: len(jwks.keys) == 2)
        assert jwks.validate(SignedValidator(), token(OLD)).principal == "alice"
        provider.document = document(NEW)
        await until(lambda: len(jwks.keys) == 1)
        with pytest.raises(TokenRefused, match="not known"):
            jwks.validate(SignedValidator(), token(OLD))


@pytest.mark.parametrize("nonsense", ["[" * 100_000, '{"keys": [{"kty": "EC", "crv": "P-1", "x": "AQ", "y": "AQ"}]}'])
async def test_whatever_a_provider_answers_it_is_asked_again(nonsense: str) -> None:
    provider = Provider()
    async with reading(provider.answer, refresh_ms=20) as jwks:
        provider.document = nonsense
        await until(lambda: provider.asked >= 4)
        assert jwks.validate(SignedValidator(), token(OLD)).principal == "alice"
        provider.document = document(NEW)
        await until(lambda: jwks.keys[0].kid == "new")
    provider.document = nonsense
    async with served(provider.answer) as url:
        with pytest.raises(ConfigError, match="the keys cannot be read"):
            await Jwks(JwksSettings(url, 20, 10, 20)).start()


async def test_a_broker_does_not_start_without_the_keys(tmp_path: Path) -> None:
    for url in ((tmp_path / "none").as_uri(), "ftp://x/keys", "http://127.0.0.1:1/keys"):
        with pytest.raises(ConfigError, match="the keys cannot be read"):
            await Jwks(JwksSettings(url, 1_000, 10, 20)).start()


async def test_keys_in_a_file_are_read_once(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(document(OLD))
    jwks = Jwks(JwksSettings(file.as_uri(), 1, 1, 1))
    await jwks.start()
    assert jwks.validate(SignedValidator(), token(OLD)).principal == "alice"
    assert jwks._task is None


async def test_one_unknown_name_asks_the_provider_once_a_minute() -> None:
    jwks = Jwks(JwksSettings("http://127.0.0.1:1/", 1_000, 10, 20))
    jwks._note_unknown("k", 100.0)
    assert jwks._again.is_set()
    jwks._again.clear()
    jwks._note_unknown("k", 101.0)
    assert not jwks._again.is_set()
    jwks._note_unknown("k", 100.0 + UNKNOWN_KEY_PAUSE_S)
    assert jwks._again.is_set()

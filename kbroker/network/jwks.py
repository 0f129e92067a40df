"""The keys that an identity provider signs its tokens with, read from a file or an address and kept up to date.

A file is read once. What comes over http is read at start (a broker without it does not start), then at intervals, and
once more when a token names a key that is not known; the same name does not cause that again for a minute, and other
names no sooner than after some seconds: whoever makes up names is not logged in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import urllib.parse
from time import monotonic, time_ns
from typing import Any

from kbroker.config.sasl import JwksSettings
from kbroker.protocol.config_def import ConfigError
from kbroker.security.oauthbearer import ValidToken
from kbroker.security.signed_tokens import SignedValidator, UnknownKey, read_keys

log = logging.getLogger(__name__)

KEY = "sasl.oauthbearer.jwks.endpoint.url"
UNKNOWN_KEY_PAUSE_S = 60.0
LEAST_PAUSE_S = 5.0
"""Between two times that the provider is asked for a key that is not known."""
MOST_UNKNOWN_KEYS = 1_000
"""Names of keys that are remembered as unknown: tokens may name what they like. Any other has the provider asked again,
which happens no more often for that."""


class Jwks:
    """The keys of one provider."""

    def __init__(self, settings: JwksSettings) -> None:
        self.keys: list[Any] = []
        self._settings = settings
        self._unknown: dict[str, float] = {}
        """Name of a key -> until when it is not asked for again."""
        self._again = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the keys; raises ConfigError that names the address."""
        url = self._settings.url
        try:
            self.keys = await self._read()
        except Exception as error:
            raise ConfigError(f"{KEY}={url}: the keys cannot be read: {error}") from error
        if urllib.parse.urlsplit(url).scheme != "file":
            self._task = asyncio.create_task(self._keep_reading(), name="jwks")

    async def _read(self) -> list[Any]:
        from kbroker.network.http_documents import fetch

        document = await asyncio.get_running_loop().run_in_executor(None, fetch, self._settings.url)
        return read_keys(document, self.keys)

    async def _keep_reading(self) -> None:
        """Read at intervals, or when asked for; after a failure again, with growing pauses."""
        settings = self._settings
        pause_ms, not_before = 0, 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((pause_ms or settings.refresh_ms) / 1000):
                    await self._again.wait()
                    await asyncio.sleep(not_before - monotonic())
            self._again.clear()
            not_before = monotonic() + LEAST_PAUSE_S
            try:
                self.keys = await self._read()
                pause_ms = 0
            except Exception as error:  # whatever an address answers: it is asked again
                pause_ms = min(max(pause_ms * 2, settings.retry_backoff_ms), settings.retry_backoff_max_ms)
                log.warning("%s: the keys cannot be read, those of before hold: %s", settings.url, error)

    def validate(self, validator: SignedValidator, token: str) -> ValidToken:
        """Return whom a token stands for; raises TokenRefused."""
        try:
            return validator.validate(token, self.keys, time_ns() // 1_000_000)
        except UnknownKey as error:
            self._note_unknown(error.key_id, monotonic())
            raise

    def _note_unknown(self, key_id: str, now: float) -> None:
        """The provider may have a new key: ask it once in a while."""
        if len(self._unknown) >= MOST_UNKNOWN_KEYS:
            self._unknown = {name: until for name, until in self._unknown.items() if until > now}
        if self._unknown.get(key_id, 0.0) <= now:
            if len(self._unknown) < MOST_UNKNOWN_KEYS:
                self._unknown[key_id] = now + UNKNOWN_KEY_PAUSE_S
            self._again.set()

    async def close(self) -> None:
        """Read no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

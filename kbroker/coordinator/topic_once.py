"""The making of a coordinator's topic: whoever asks for it meanwhile waits for the same attempt."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


class TopicOnce:
    """Of one topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._creation: asyncio.Future[object] | None = None

    async def create(self, create: Callable[[], Awaitable[object]]) -> None:
        """Create the topic, unless that is under way; returns when the attempt is over, however it went."""
        if self._creation is None:
            self._creation = asyncio.ensure_future(create())
            self._creation.add_done_callback(self._created)
        await asyncio.wait([self._creation])

    def _created(self, creation: asyncio.Future[object]) -> None:
        self._creation = None
        if not creation.cancelled() and creation.exception() is not None:
            log.error("%s cannot be created", self.topic, exc_info=creation.exception())

    def cancel(self) -> None:
        """Give up what is under way."""
        if self._creation is not None:
            self._creation.cancel()

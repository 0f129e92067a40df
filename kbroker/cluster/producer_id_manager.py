"""Producer ids for idempotent producers, handed out of blocks of 1000 that the controller allocates
(AllocateProducerIds).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from kbroker.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

REFILL_AT = 0.9
"""The next block is asked for when this share of the present one is used."""
WAIT_S = 2.0
"""Then who asks is told to ask again: well before clients give the whole connection up."""
RETRY_PAUSE_S = 0.05


class ProducerIdManager:
    """Hands out ids that no other broker hands out."""

    def __init__(self, allocate: Callable[[], Awaitable[Any]]) -> None:
        """`allocate` asks the controller: it returns an AllocateProducerIdsResponse or raises KafkaError."""
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._refill_from = 0
        self._following: tuple[int, int] | None = None
        self._refill: asyncio.Task[None] | None = None

    async def next_id(self) -> int:
        """Return a fresh producer id; raises KafkaError COORDINATOR_LOAD_IN_PROGRESS when the controller gives none."""
        if self._next == self._end:
            self._take_following()
        if self._next == self._end:
            await self._wait_for_block()
        producer_id = self._next
        self._next += 1
        if self._next >= self._refill_from and self._following is None:
            self._start_refill()
        return producer_id

    def _take_following(self) -> None:
        if self._following is not None:
            (first, count), self._following = self._following, None
            self._next, self._end = first, first + count
            self._refill_from = first + int(count * REFILL_AT)

    async def _wait_for_block(self) -> None:
        refill = self._start_refill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(refill), WAIT_S)
        if self._next == self._end:
            self._take_following()
        if self._next == self._end:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "No producer ids from the controller yet.")

    def _start_refill(self) -> asyncio.Task[None]:
        if self._refill is None or self._refill.done():
            self._refill = asyncio.create_task(self._fetch_block())
        return self._refill

    async def _fetch_block(self) -> None:
        """Ask until there is a block."""
        while self._following is None:
            try:
                answer = await self._allocate()
                if answer.error_code is ErrorCode.NONE:
                    self._following = (answer.producer_id_start, answer.producer_id_len)
                    return
                log.warning("no producer ids from the controller: %s", answer.error_code.name)
            except KafkaError as error:
                log.warning("no producer ids from the controller: %s", error)
            await asyncio.sleep(RETRY_PAUSE_S)

    async def close(self) -> None:
        """Stop asking."""
        if self._refill is not None:
            self._refill.cancel()
            await asyncio.gather(self._refill, return_exceptions=True)

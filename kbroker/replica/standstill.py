"""A process that stood still may have been taken for dead: others lead its partitions, and it does not know.

A virtual machine that is moved, a full swap, SIGSTOP: when the process goes on, the writes that waited in its sockets
are read before ZooKeeper and the controller are heard. Appending them would acknowledge (acks=1) what is cut away soon,
or answer an idempotent producer from a state that others have moved on from. So writes are refused after a standstill
until it is known in which life this broker is; or, where nobody tells, for PROOF_S.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from kbroker.controller.znode_operations import ZooKeeperError

log = logging.getLogger(__name__)

TICKS_PER_PATIENCE = 8
PROOF_S = 30.0
PROOF_PAUSE_S = 0.05
"""How long at most, and how often, to ask in which life this broker is."""


def boot_time() -> float:
    """Seconds since the machine started, those included in which it was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Standstill:
    """Notices gaps in the event loop's life of more than `patience_s`."""

    def __init__(
        self, patience_s: float, prove: Callable[[], Awaitable[None]], clock: Callable[[], float] = boot_time
    ) -> None:
        """`prove` returns when it is known that nobody leads in this broker's place without its knowing."""
        self._patience_s = patience_s
        self._prove = prove
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ticked = clock()
        self._timer = self._loop.call_soon(self._tick)
        self._proving: asyncio.Task[None] | None = None

    def is_unproven(self) -> bool:
        """Whether this broker may lead no more without knowing; called for each write."""
        if self._proving is not None:
            return True
        if self._clock() - self._ticked <= self._patience_s:
            return False
        self._notice()
        return True

    def _tick(self) -> None:
        if self._proving is None and self._clock() - self._ticked > self._patience_s:
            self._notice()
        self._ticked = self._clock()
        self._timer = self._loop.call_later(self._patience_s / TICKS_PER_PATIENCE, self._tick)

    def _notice(self) -> None:
        text = "this process stood still for %.1f s: no writes are taken until it is known who leads"
        log.warning(text, self._clock() - self._ticked)
        self._proving = self._loop.create_task(self._until_proven(), name="standstill")

    async def _until_proven(self) -> None:
        begun = self._clock()
        try:
            await self._prove()
        finally:
            self._proving = None
            self._ticked = self._clock()
        log.info("writes are taken again after %.0f ms", 1000 * (self._clock() - begun))

    def close(self) -> None:
        """Watch no more."""
        self._timer.cancel()
        if self._proving is not None:
            self._proving.cancel()


async def proof(
    registered_epoch: Callable[[], Awaitable[int | None]], is_this_life: Callable[[int | None], bool]
) -> None:
    """Return when the epoch by which ZooKeeper knows this broker is that of its present life; after PROOF_S anyhow."""
    try:
        async with asyncio.timeout(PROOF_S):
            while not await _tells_this_life(registered_epoch, is_this_life):  # noqa: ASYNC110 - nobody tells unasked
                await asyncio.sleep(PROOF_PAUSE_S)
    except TimeoutError:
        log.warning("ZooKeeper and the controller are silent for %g s: leading on as before", PROOF_S)


async def _tells_this_life(
    registered_epoch: Callable[[], Awaitable[int | None]], is_this_life: Callable[[int | None], bool]
) -> bool:
    try:
        return is_this_life(await registered_epoch())
    except ZooKeeperError as error:
        log.info("ZooKeeper does not say whether this broker is alive: %s", error)
        return False

"""Notifications that every broker reads: sequential nodes below one path, each saying what has changed.

Who changes something writes it first and then a notification; who watches reads anew what a notification names.
Changes are told in order, one at a time, each once; those of before a lost connection too. Whoever comes by removes
those that are so old that every broker has had the time to read them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from kbroker.controller.znode_operations import NoNode, SessionExpired, Znodes, ZooKeeperError
from kbroker.controller.znodes import MalformedZnode

log = logging.getLogger(__name__)

EXPIRY_MS = 15 * 60 * 1000

Change = TypeVar("Change")


class ChangeNotifications(Generic[Change]):
    """Reads the notifications below a path; `decode` gives what one of them says, None for what nobody knows."""

    def __init__(
        self,
        znodes: Znodes,
        path: str,
        decode: Callable[[bytes | None, str], Change | None],
        callback: Callable[[Change], Awaitable[None] | None],
    ) -> None:
        self._znodes = znodes
        self._path = path
        self._decode = decode
        self._callback = callback
        self._last = -1
        self._reading = asyncio.Lock()

    async def watch(self) -> None:
        """Call back for every change from now on, and once for each still listed."""

        def look_again(_path: str) -> None:
            task = asyncio.ensure_future(self._read())
            task.add_done_callback(self._log_failure)

        self._znodes.watch(self._path, look_again)
        await self._read()

    async def _read(self) -> None:
        async with self._reading:
            names = await self._znodes.children(self._path, watch=True)
            new = [name for name in names if _sequence(name) > self._last]
            changes = [await self._get(f"{self._path}/{name}") for name in new]
            last = {change: number for number, change in enumerate(changes)}
            for number, (name, change) in enumerate(zip(new, changes, strict=True)):
                if change is not None and last[change] == number:  # once for all that say the same
                    await self._tell(change, f"{self._path}/{name}")
                self._last = _sequence(name)
            if new:
                await self._purge(names)

    async def _get(self, path: str) -> Change | None:
        try:
            data, _ = await self._znodes.get(path)
            return self._decode(data, path)
        except (NoNode, MalformedZnode) as error:
            log.warning("change skipped: %s", error)
            return None

    async def _tell(self, change: Change, path: str) -> None:
        """Have a change followed. Raises ZooKeeperError when the session ended meanwhile: it is read again then."""
        try:
            answer = self._callback(change)
            if answer is not None:
                await answer
        except ZooKeeperError:
            raise
        except MalformedZnode as error:  # somebody wrote it by hand
            log.error("the change at %s is not followed, what was known before goes on: %s", path, error)
        except Exception:
            log.exception("the change at %s could not be followed", path)

    async def _purge(self, names: Sequence[str]) -> None:
        """Look at them from the oldest on, up to the first that is to stay: there may be thousands."""
        now_ms = time.time() * 1000
        for name in sorted(names, key=_sequence):
            path = f"{self._path}/{name}"
            stat = await self._znodes.exists(path)
            if stat is None:
                continue
            if stat.ctime_ms + EXPIRY_MS > now_ms:
                return
            with contextlib.suppress(NoNode):
                await self._znodes.delete(path)

    def _log_failure(self, task: asyncio.Future[None]) -> None:
        """An expired session needs no word: the listing is read again when the next one stands."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, SessionExpired):
            log.warning("changes below %s not read: %s", self._path, error)


def _sequence(name: str) -> int:
    """The number ZooKeeper appended to a sequential node; -1 for a name of another kind."""
    digits = name[-10:]
    return int(digits) if digits.isdigit() else -1

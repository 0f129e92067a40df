"""What the user's callbacks raise: nobody waits for them, and what goes on here must not end by it."""

from __future__ import annotations

import asyncio
import logging
from weakref import WeakSet

log = logging.getLogger(__name__)

_ending: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""Loops that a callback has ended already."""


def callback_raised(error: BaseException, what: str) -> None:
    """Log what a callback has raised; `what` names it.

    sys.exit() and Ctrl-C are not the callback's alone: the loop raises the first one as soon as whoever called is done
    with its own work. It ends an asyncio program, whose cleaning up the next ones must not end; a blocking client's
    thread, which can end no program, logs it.
    """
    if isinstance(error, SystemExit | KeyboardInterrupt):
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a thread of the user's
            raise error from None
        if loop not in _ending:
            _ending.add(loop)
            loop.call_soon(_raise, error)
            return
    log.error("%s raised", what, exc_info=error)


def _raise(error: BaseException) -> None:
    raise error

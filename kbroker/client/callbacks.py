"""What the user's callbacks raise: nobody waits for them, and what goes on here must not end by it."""

from __future__ import annotations

import asyncio
import logging

log = logging.getLogger(__name__)


def callback_raised(error: BaseException, what: str) -> None:
    """Log what a callback has raised; `what` names it.

    sys.exit() and Ctrl-C are not the callback's alone: the loop raises them as soon as whoever called is done with its
    own work. They end an asyncio program; a blocking client's thread, which can end no program, logs them.
    """
    if not isinstance(error, SystemExit | KeyboardInterrupt):
        log.error("%s raised", what, exc_info=error)
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # a thread of the user's
        raise error from None
    loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error

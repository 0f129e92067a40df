"""The addresses of hosts that limits name: asked of the system's resolver, which may take half a minute."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any

LONGEST_LOOKUP_S = 5.0
"""While somebody waits for an answer; the resolver asks the next name server after as long."""


async def look_up(name: str, *, patient: bool = False) -> list[str]:
    """Return the addresses of a host, as connections have them; raises OSError that says why there are none.

    It has LONGEST_LOOKUP_S; `patient`: as long as the resolver takes.
    Raises RuntimeError where no thread can be started.
    """
    try:
        answers = await asyncio.wait_for(_asked(name), None if patient else LONGEST_LOOKUP_S)
    except TimeoutError:
        raise OSError(f"no answer within {LONGEST_LOOKUP_S:g} s") from None
    except ValueError as error:  # a name that cannot be one
        raise OSError(str(error)) from None
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))


def _asked(name: str) -> asyncio.Future[Any]:
    """Ask the resolver in a thread of its own: no pool of others' work waits for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def tell(answer: Any, problem: Exception | None) -> None:
        if future.done():  # nobody waits any more
            return
        if problem is None:
            future.set_result(answer)
        else:
            future.set_exception(problem)

    def ask() -> None:
        answer, problem = None, None
        try:
            answer = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            problem = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, answer, problem)

    threading.Thread(target=ask, name=f"look-up of {name}", daemon=True).start()
    return future

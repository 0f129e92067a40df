"""An answer that comes later, and calls who waits for it at once.

A future's callbacks wait for the loop's next turn. Whoever gives a reply stands on top of the loop, with nothing half
done, so that the answer can leave in the same turn: `DelayedFetch` does, whom the loop itself calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any


class Reply:
    """Has the methods of a future that it shares; done once, with a result, an error, or cancelled."""

    __slots__ = ("_callbacks", "_error", "_is_done", "_value")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Reply], object]] = []
        self._error: BaseException | None = None
        self._is_done = False
        self._value: Any = None

    def done(self) -> bool:
        """Whether it is known, or nobody wants it any more."""
        return self._is_done

    def cancelled(self) -> bool:
        """Whether nobody wanted it any more."""
        return isinstance(self._error, asyncio.CancelledError)

    def exception(self) -> BaseException | None:
        """Return the error it ended with."""
        return self._error

    def result(self) -> Any:
        """Return the answer, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, value: Any) -> None:
        """This is the answer."""
        self._value = value
        self._finish()

    def set_exception(self, error: BaseException) -> None:
        """There will be no answer."""
        self._error = error
        self._finish()

    def cancel(self) -> bool:
        """Nobody wants it any more; returns whether that is news."""
        if self._is_done:
            return False
        self.set_exception(asyncio.CancelledError())
        return True

    def _finish(self) -> None:
        assert not self._is_done
        self._is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[Reply], object]) -> None:
        """Call this when it is done, before whoever finishes it goes on."""
        assert not self._is_done
        self._callbacks.append(callback)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for it as for a future; who is cancelled does not want it any more."""
        if not self._is_done:
            woken = asyncio.get_running_loop().create_future()

            def wake(reply: Reply) -> None:
                if not woken.done():
                    woken.set_result(None)

            self.add_done_callback(wake)
            try:
                yield from woken
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self.result()

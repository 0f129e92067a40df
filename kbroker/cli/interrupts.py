"""Ctrl-C as a wish, not an exception: what is under way is finished, then the command ends."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
"""The exit status of a command whose work Ctrl-C has cut short, as shells have it."""


class Interrupts:
    """What was pressed: `if interrupts: …`."""

    def __init__(self, *, second_raises: bool) -> None:
        self._second_raises = second_raises
        self._may_cut_short = False
        self._seen = False

    def __bool__(self) -> bool:
        return self._seen

    @contextmanager
    def raising(self) -> Iterator[None]:
        """While this waits, Ctrl-C raises KeyboardInterrupt: for what loses nothing when it is cut short."""
        self._may_cut_short = True
        try:
            yield
        finally:
            self._may_cut_short = False

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        raises = self._may_cut_short or (self._seen and self._second_raises)
        self._seen = True
        if raises:
            raise KeyboardInterrupt


@contextmanager
def interrupts(*, second_raises: bool = False) -> Iterator[Interrupts]:
    """Yield what is true once Ctrl-C was pressed; the second time may raise KeyboardInterrupt."""
    seen = Interrupts(second_raises=second_raises)
    before = signal.signal(signal.SIGINT, seen.on_signal)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)

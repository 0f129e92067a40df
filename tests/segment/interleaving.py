"""What another thread may do between two lines, done there."""

import sys
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any


def at_each_line(function: Callable[[], object], code: CodeType, others: Iterable[Callable[[], object]]) -> None:
    """Run `function`; before each line of `code` that it comes to, one of the others runs, as another thread may."""
    waiting = iter(others)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is code and event == "line":
            before = sys.gettrace()
            sys.settrace(None)
            next(waiting, lambda: None)()
            sys.settrace(before)
        return trace

    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(None)

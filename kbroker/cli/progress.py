"""A bar on standard error for what takes its time; nothing where that is no terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal


@contextmanager
def progress_bar(
    text: str, total: int | None, unit: Literal["count", "bytes"] = "count"
) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how many of `total` (None: nobody knows) are done."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), amount, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(text, total=total)
        yield lambda done: progress.update(task, completed=done)

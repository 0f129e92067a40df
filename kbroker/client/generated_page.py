"""The programs that write a page of the documentation from the code, or say that the file is not up to date."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def print_or_check(page: Callable[[], str], arguments: Sequence[str]) -> int:
    """Print the page, or with `--check FILE` say whether the file is up to date; returns the exit status."""
    if not arguments:
        print(page(), end="")
        return 0
    file = Path(arguments[-1])
    if file.exists() and file.read_text(encoding="utf-8") == page():
        return 0
    print(f"{file} is not up to date: write it anew with make docs", file=sys.stderr)
    return 1

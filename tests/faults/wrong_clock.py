"""Clocks of brokers that a test sets as it likes; see clock/sitecustomize.py for the broker's side."""

from __future__ import annotations

import os
from pathlib import Path

import kbroker

HOOK = Path(__file__).parent / "clock"
PACKAGES = Path(kbroker.__file__).parent.parent


class WrongClock:
    """One broker's clock, off by a number of seconds."""

    def __init__(self, file: Path, offset_s: float = 0.0) -> None:
        self._file = file
        self.set(offset_s)

    @property
    def launcher(self) -> list[str]:
        """Goes before the command that runs the broker."""
        return ["env", f"CLOCK_FILE={self._file}", f"PYTHONPATH={HOOK}{os.pathsep}{PACKAGES}"]

    def set(self, offset_s: float) -> None:
        """Set the clock, of a running broker too."""
        temporary = self._file.with_suffix(".new")
        temporary.write_text(str(offset_s))
        temporary.replace(self._file)

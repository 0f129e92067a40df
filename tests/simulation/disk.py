"""Disks: real files in a folder, below the seam of segment/files.py. What is in memory and what is late is drawn.

Nothing waits for a real disk: a sync is noted, not done, and the times at which files were changed are virtual.
"""

from __future__ import annotations

import os
from typing import Any

from kbroker.segment import files
from tests.simulation.loop import EPOCH_S, STARTED_AT_S, Simulation

NOT_IN_MEMORY = 0.03
"""How often what is read at once has to come from the disk first."""
MADE_AT_NS = int((EPOCH_S + STARTED_AT_S) * 1e9)
"""Nobody but their brokers changes files."""


def take_over(simulation: Any) -> None:
    """Let every log of this process lie on a simulated disk; `simulation` returns the one that is played."""

    def read_at_once(disk: Any, descriptor: int, buffer: bytearray, position: int) -> bool:
        playing: Simulation = simulation()
        if playing.rng.random() < NOT_IN_MEMORY:
            return False
        return os.preadv(descriptor, (buffer,), position) == len(buffer)

    files.Files.read_at_once = read_at_once  # type: ignore[method-assign]
    for name in ("sync", "sync_folder", "sync_path", "sync_filesystem"):
        setattr(files.Files, name, _noted)
    files.PooledFile.change_time_ns = lambda file: MADE_AT_NS  # type: ignore[method-assign]
    files.PooledFile.modified_ms = lambda file: MADE_AT_NS // 1_000_000  # type: ignore[method-assign]


def _noted(disk: Any, what: Any) -> None:
    """What was written is safe from now on."""

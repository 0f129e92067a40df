"""What the stand-in's process is made of; how it lives is tested in test_stand_in_zookeeper.py."""

import os
import subprocess
import sys
from pathlib import Path

from kbroker.dev.stand_in.process import first_session_id

ROOT = str(Path(__file__).resolve().parents[4])
HEAVY = ("asyncio", "dataclasses", "inspect", "logging", "subprocess", "pathlib", "hashlib", "kazoo", "typer", "json")


def test_ids_of_sessions_are_of_the_starts_epoch() -> None:
    assert first_session_id(7 << 32) == (7 << 32) + 1
    assert first_session_id((7 << 32) + 99) == (7 << 32) + 1


def test_it_loads_next_to_nothing() -> None:
    program = f"import sys; import kbroker.dev.stand_in.process; print([n for n in {HEAVY} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == "[]\n", done.stderr

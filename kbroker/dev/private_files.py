"""Files that hold secrets: nobody but their owner can read them, not even while they are written."""

import os
from pathlib import Path

OWNERS = 0o600


def write_private(path: Path, text: str, mode: int = OWNERS) -> None:
    """Write a file in one step, with that mode from its first byte on."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNERS), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    temporary.replace(path)

"""Files that hold secrets."""

import os
from pathlib import Path

from kbroker.dev.private_files import write_private


def test_only_the_owner_may_read_the_file_whatever_was_there_before(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    file.chmod(0o644)
    before = os.umask(0)
    try:
        write_private(file, "pässword")
    finally:
        os.umask(before)
    assert (file.read_text(encoding="utf-8"), file.stat().st_mode & 0o777) == ("pässword", 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


def test_what_everybody_may_read_is_readable_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_private(tmp_path / "public", "text", mode=0o644)
    finally:
        os.umask(before)
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o644

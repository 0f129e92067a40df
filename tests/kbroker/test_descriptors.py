from __future__ import annotations

import pytest

from tests.kbroker.test_process import told_by


@pytest.mark.slow
def test_as_many_files_as_may_be_are_open() -> None:
    script = "import resource; raise_descriptor_limit(); print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    assert told_by(script, "prlimit", "--nofile=100:200") == "200 200\n"

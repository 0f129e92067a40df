"""`kbroker jvm`: one line, a home with a JVM in it."""

import subprocess
import sys
from pathlib import Path

from tests.fixtures.zookeeper import skip_without_embedded_zookeeper


def test_it_prints_a_home_whose_java_runs() -> None:
    skip_without_embedded_zookeeper()
    command = [sys.executable, "-m", "kbroker", "jvm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    [home] = done.stdout.splitlines()
    assert (
        "version"
        in subprocess.run(
            [Path(home) / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=True
        ).stderr
    )

"""Executors that are processes of their own, with another Python than the driver's: shipping, failures, errors."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from tests.fixtures.package import build_wheel
from tests.fixtures.spark import lay_out_spark_home
from tests.spark.test_read import ROWS, create, send

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("spark_flags")]
ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("cluster_job.py")
LIMIT_S = 600

# An executor's Python finds the installed packages without the checkout; the driver's, what this process finds.
OTHER_PYTHON = """#!/bin/sh
if [ -n "$SPARK_EXECUTOR_DIRS" ]; then
    found={packages}
    if [ -e {folder}/no-pyarrow ]; then found={folder}/packages-without-pyarrow; fi
    PYTHONPATH=$found exec {python} -S "$@"
fi
exec {python} "$@"
"""


def prepare(folder: Path) -> dict[str, str]:
    """Lay out what the executors may find; returns the environment of the job."""
    (folder / "build").mkdir()
    build_wheel(folder / "build").rename(folder / "kbroker.zip")
    packages = Path(sysconfig.get_path("purelib"))
    (folder / "packages-without-pyarrow").mkdir()
    for entry in packages.iterdir():
        if not entry.name.startswith("pyarrow"):
            (folder / "packages-without-pyarrow" / entry.name).symlink_to(entry)
    home = lay_out_spark_home(folder / "spark-home")
    python = folder / "python"
    python.write_text(OTHER_PYTHON.format(packages=packages, folder=folder, python=sys.executable))
    python.chmod(0o755)
    chosen = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python)}
    return {**os.environ, **chosen, "PYTHONPATH": str(ROOT)}


def test_executors_get_the_wheel_with_the_job_and_may_die(
    broker: BrokerProcess, topic_name: str, tmp_path: Path
) -> None:
    create(broker, topic_name)
    create(broker, f"{topic_name}-copy")
    send(broker, topic_name)
    arguments = [sys.executable, str(JOB), broker.bootstrap, topic_name, str(ROWS), str(tmp_path)]
    done = subprocess.run(
        arguments, env=prepare(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert "No module named 'pyarrow'" in found.pop("without pyarrow")
    assert found == {"executor killed": [ROWS, ROWS], "it was killed": True, "streamed": ROWS}

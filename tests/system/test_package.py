"""What pip installs: one name of ours, beside whatever a user's project has."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.fixtures.package import ROOT, build_sdist, build_wheel
from tests.fixtures.zookeeper import skip_without_embedded_zookeeper

pytestmark = pytest.mark.slow

USERS_MODULES = (
    "protocol.py",
    "segment/__init__.py",
    "controller/__init__.py",
    "spark_connector/__init__.py",
    "config.py",
)
USERS_TEST = """
import os
import controller, protocol, segment, spark_connector
import kbroker
from kbroker import Consumer, Producer


def test_mine(kbroker_cluster, kbroker_topic):
    assert kbroker.__file__.startswith(os.environ["INSTALLED_IN"])
    assert [m.MINE for m in (controller, protocol, segment, spark_connector)] == [True] * 4
    with Producer(kbroker_cluster.bootstrap) as producer:
        producer.send(kbroker_topic, value=b"hello").result(30)
    with Consumer(kbroker_cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([kbroker_topic])
        [record] = consumer.poll(20.0)
        assert record.value == b"hello"


def test_spark_finds_the_source():
    import pkgutil
    found = [module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")]
    assert "pyspark_kbroker" in found
    from pyspark_kbroker import DefaultSource
    assert DefaultSource.name() == "kbroker"
"""


def sources_of_the_rooms() -> set[str]:
    """Every module and declaration that has to be in the package, under its name there."""
    found = set()
    for room in ("protocol", "segment", "controller", "spark_connector"):
        found |= {f"kbroker/{path.relative_to(ROOT)}" for path in (ROOT / room).rglob("*.p[yx]*")}
    found |= {str(path.relative_to(ROOT)) for path in (ROOT / "kbroker").rglob("*.p[yx]*")}
    return {name for name in found if name.endswith((".py", ".pxd"))} | {"pyspark_kbroker.py"}


def test_the_source_distribution_has_every_module_once(tmp_path: Path) -> None:
    with tarfile.open(build_sdist(tmp_path)) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        assert not [member.name for member in archive.getmembers() if member.issym() or member.islnk()]
    packaged = {name for name in names if name.endswith((".py", ".pxd"))} - {"setup.py"}
    assert packaged == sources_of_the_rooms()


def test_the_wheel_lives_beside_a_users_modules_of_the_same_names(tmp_path: Path) -> None:
    skip_without_embedded_zookeeper()
    (tmp_path / "build").mkdir()
    installed, project = tmp_path / "site-packages", tmp_path / "project"
    with zipfile.ZipFile(build_wheel(tmp_path / "build")) as wheel:
        tops = {name.partition("/")[0] for name in wheel.namelist()}
        assert {name for name in tops if not name.endswith(".dist-info")} == {"kbroker", "pyspark_kbroker.py"}
        assert set(wheel.namelist()) >= sources_of_the_rooms()
        wheel.extractall(installed)
    for name in USERS_MODULES:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("MINE = True\n")
    (project / "test_mine.py").write_text(USERS_TEST)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment.update(PYTHONPATH=str(installed), INSTALLED_IN=str(installed), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "kbroker.pytest_plugin", "."],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout

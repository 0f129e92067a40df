"""What pip installs: one name of ours, beside whatever a user's project has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from tests.fixtures.package import ROOT, build_sdist, build_wheel

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


USERS_PROGRAM = """
import importlib.util, sys
from kbroker import Consumer, Producer

assert importlib.util.find_spec("pyspark") is None
with Producer(sys.argv[1]) as producer:
    producer.send("mine", value=b"hello").result(60)
with Consumer(sys.argv[1], auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["mine"])
    [record] = consumer.poll(60.0)
    print(record.value.decode())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("build"))


def needed_by(requirements: Iterable[str]) -> dict[str, Distribution]:
    """What pip would install for them, without any extras."""
    found: dict[str, Distribution] = {}
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if name in found or "extra ==" in requirement or 'platform_system == "Windows"' in requirement:
            continue
        found[name] = distribution(name)
        waiting += found[name].requires or []
    return found


def link_into(folder: Path, installed: Distribution) -> None:
    for top in {file.parts[0] for file in installed.files or () if not file.parts[0].startswith("..")}:
        if not (folder / top).exists():
            (folder / top).symlink_to(Path(str(installed.locate_file(top))))


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


def test_the_package_has_what_the_page_shows(tmp_path: Path, wheel: Path) -> None:
    page = ROOT / "kbroker" / "page"
    shown = {str(path.relative_to(ROOT)) for folder in ("static", "templates") for path in (page / folder).iterdir()}
    assert shown
    with zipfile.ZipFile(wheel) as archive:
        assert shown <= set(archive.namelist())
    with tarfile.open(build_sdist(tmp_path)) as archive:
        assert shown <= {name.partition("/")[2] for name in archive.getnames()}


def test_what_pip_installs_without_extras_runs_a_cluster_without_a_jvm(tmp_path: Path, wheel: Path) -> None:
    installed = tmp_path / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    [metadata] = installed.glob("*.dist-info/METADATA")
    lines = metadata.read_text().splitlines()
    wanted = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    for each in needed_by(wanted).values():
        link_into(installed, each)
    bare = os.path.realpath(sys.executable)  # outside the environment, which has everything
    environment = {"PYTHONPATH": str(installed), "PATH": "/nowhere", "HOME": str(tmp_path)}
    command = [bare, "-m", "kbroker", "dev", "--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as cluster:
        try:
            assert cluster.stdout is not None
            line = cluster.stdout.readline()
            assert "; stand-in for ZooKeeper at 127.0.0.1:" in line
            bootstrap = line.split()[3]
            program = [bare, "-c", USERS_PROGRAM, bootstrap]
            done = subprocess.run(
                program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
            )
            assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
            cluster.terminate()
            assert cluster.wait(60) == 0
        finally:
            cluster.kill()


def test_the_wheel_lives_beside_a_users_modules_of_the_same_names(tmp_path: Path, wheel: Path) -> None:
    installed, project = tmp_path / "site-packages", tmp_path / "project"
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        assert {name for name in tops if not name.endswith(".dist-info")} == {"kbroker", "pyspark_kbroker.py"}
        assert set(archive.namelist()) >= sources_of_the_rooms()
        archive.extractall(installed)
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

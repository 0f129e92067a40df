"""Which ZooKeeper runs: what was asked for, what the folder holds, what the machine can run."""

from pathlib import Path

import pytest

from kbroker.dev import zookeepers
from kbroker.dev.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
from kbroker.dev.stand_in_zookeeper import StandInZooKeeper
from kbroker.dev.zookeepers import own_zookeeper


@pytest.fixture
def _no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name in ("JAVA_HOME", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.usefixtures("_no_jvm")
def test_without_a_jvm_it_is_the_stand_in(tmp_path: Path) -> None:
    assert not zookeepers.can_run_embedded()
    assert isinstance(own_zookeeper(tmp_path), StandInZooKeeper)
    assert isinstance(own_zookeeper(tmp_path, "embedded"), EmbeddedZooKeeper)


def test_where_a_real_one_can_run_it_does_unless_the_stand_in_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeepers, "can_run_embedded", lambda: True)
    assert isinstance(own_zookeeper(tmp_path), EmbeddedZooKeeper)
    assert isinstance(own_zookeeper(tmp_path, "stand-in"), StandInZooKeeper)


@pytest.mark.parametrize("can_run", [True, False])
def test_a_folder_keeps_the_kind_it_has_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_run: bool
) -> None:
    monkeypatch.setattr(zookeepers, "can_run_embedded", lambda: can_run)
    (tmp_path / "a" / "stand-in").mkdir(parents=True)
    (tmp_path / "b" / "version-2").mkdir(parents=True)
    assert isinstance(own_zookeeper(tmp_path / "a"), StandInZooKeeper)
    assert isinstance(own_zookeeper(tmp_path / "b"), EmbeddedZooKeeper)


def test_a_real_one_refuses_the_stand_ins_folder(tmp_path: Path) -> None:
    (tmp_path / "stand-in").mkdir()
    with pytest.raises(EmbeddedZooKeeperError, match=r"holds the data of the stand-in.*--zookeeper stand-in"):
        own_zookeeper(tmp_path, "embedded").start()
    assert not (tmp_path / "zoo.cfg").exists()

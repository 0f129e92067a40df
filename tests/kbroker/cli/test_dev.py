"""`kbroker dev`: its arguments; what it does is tested in tests/kbroker/dev/test_run.py."""

import sys
from pathlib import Path
from typing import Any

import pytest

from kbroker.dev import run as dev
from kbroker.dev.cluster import DevCluster
from tests.kbroker.cli.commands import kbroker


def test_every_argument_reaches_the_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def run(cluster: DevCluster, ready_file: Path | None, companion: list[str]) -> int:
        seen.update(vars(cluster), ready_file=ready_file, companion=companion)
        return 0

    monkeypatch.setattr(dev, "run", run)
    done = kbroker(
        *("dev", "--brokers", "3", "--port", "0", "--data", str(tmp_path), "--zookeeper", "zk:2181/kafka"),
        *("--metrics", "--secure", "--set", "num.partitions=7", "--ready-file", str(tmp_path / "ready.json")),
    )
    assert done.returncode == 0, done.stderr
    assert (seen["_broker_count"], seen["_requested_port"], seen["data_dir"]) == (3, 0, tmp_path)
    assert seen["_external_zookeeper"] == "zk:2181/kafka"
    assert seen["_with_metrics"]
    assert seen["secured"].folder == tmp_path / "secure"
    assert seen["_properties"] == {"num.partitions": "7"}
    assert seen["ready_file"] == tmp_path / "ready.json"
    assert seen["companion"] == []
    assert kbroker("dev", "--data", str(tmp_path), "--page").returncode == 0
    assert seen["companion"][1:] == ["-m", "kbroker", "page", "--allow-writes"]


@pytest.mark.parametrize("kind", ["stand-in", "embedded"])
def test_the_kind_of_zookeeper_is_no_connect_string(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(dev, "run", lambda cluster, *more: seen.update(vars(cluster)) or 0)
    assert kbroker("dev", "--data", str(tmp_path), "--zookeeper", kind).returncode == 0
    assert (seen["_wanted_zookeeper"], seen["_external_zookeeper"]) == (kind, None)


@pytest.mark.parametrize(
    "arguments", [("--brokers", "0"), ("--port", "70000"), ("--set", "x"), ("unexpected",), ("--page", "--secure")]
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    assert kbroker("dev", *arguments).returncode == 2


def test_a_key_that_brokers_do_not_have_is_told_where_it_was_typed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(dev, "run", lambda *arguments: 0)
    keys = ("--set", "num.partition=3", "--set", "num.io.threads=4", "--set", "listener.name.a.ssl.protocol=x")
    done = kbroker("dev", "--data", str(tmp_path), *keys)
    [line] = done.stderr.splitlines()
    assert line.startswith(
        "kbroker dev: num.partition is no key of a broker and means nothing here (did you mean num.p"
    )
    assert done.returncode == 0


def test_a_page_whose_libraries_are_missing_is_told_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[object] = []
    monkeypatch.setattr(dev, "run", lambda *arguments: started.append(arguments) or 0)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for command in (("dev", "--data", str(tmp_path), "--page"), ("page",)):
        done = kbroker(*command)
        assert (done.returncode, done.stderr) == (1, "kbroker: uvicorn is not installed: pip install 'kbroker[page]'\n")
    assert not started

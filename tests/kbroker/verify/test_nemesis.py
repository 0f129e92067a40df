"""Tests for kbroker.verify.nemesis: what nothing does, and which nemesis a name means."""

import random
from pathlib import Path

from kbroker.verify.hooks import HookNemesis
from kbroker.verify.nemesis import NoNemesis, make_nemesis


def test_no_nemesis_leaves_clients_and_cluster_alone() -> None:
    nemesis = make_nemesis("none", seed=1)
    assert isinstance(nemesis, NoNemesis)
    assert nemesis.start("broker:9092") == "broker:9092"
    assert nemesis.inject(random.Random(1)) is None
    nemesis.heal()
    nemesis.stop()


def test_another_name_is_a_file_of_commands(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("faults: {nothing: {do: 'true'}}")
    assert isinstance(make_nemesis(str(file), seed=1), HookNemesis)

"""docs/metrics.md is what the declarations say."""

import re
from pathlib import Path

import pytest

from kbroker.metrics.families import FAMILIES
from kbroker.metrics.metrics_page import main, page

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_the_page_is_up_to_date_and_names_every_metric() -> None:
    assert main(["--check", str(PAGE)]) == 0, "write it anew with make docs"
    text = page()
    for family in FAMILIES.values():
        assert (f"| `{family.name}`, `{family.also}` |" if family.also else f"| `{family.name}` |") in text


def test_the_rule_that_leaves_second_names_out_leaves_out_these_alone() -> None:
    found = re.search(r"`action: drop`, `regex: (.+?)`", page())
    assert found is not None
    names = {name for family in FAMILIES.values() for name in (family.name, family.also) if name}
    seconds = {family.also for family in FAMILIES.values() if family.also}
    left_out = {name for name in names if re.fullmatch(found[1], name)}
    assert left_out == seconds | {"kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total"}


def test_a_page_that_is_not_up_to_date_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "metrics.md"
    old.write_text("# Metrics\n")
    assert main(["--check", str(old)]) == 1
    assert "make docs" in capsys.readouterr().err

from pathlib import Path

import pytest

from kbroker.client import settings_page
from kbroker.client.client_config import ConsumerConfig, ProducerConfig
from kbroker.client.settings import settings_of

PAGE = Path(__file__).parents[3] / "docs" / "client-settings.md"


def test_the_page_names_every_setting_once_with_a_text() -> None:
    lines = settings_page.page().splitlines()
    for config in (ProducerConfig, ConsumerConfig):
        for each in settings_of(config):
            (row,) = [line for line in lines if line.startswith(f"| `{each.name}` |")]
            assert row.count("|") == 7, row
            assert len(each.doc) > 10


def test_a_page_that_is_not_fresh_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert settings_page.main(["--check", str(PAGE)]) == 0
    stale = tmp_path / "page.md"
    stale.write_text(settings_page.page().replace("linger_ms", "linger"))
    assert settings_page.main(["--check", str(stale)]) == 1
    assert "make docs" in capsys.readouterr().err

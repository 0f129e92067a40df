"""`kbroker log dump` and `kbroker log verify`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kbroker.cli.log import app
from tests.segment.batches import fill, new_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = new_log(tmp_path)
    fill(log, 3)
    log.close()
    return log.directory


def test_dump_prints_batches_and_records(folder: Path) -> None:
    done = CliRunner().invoke(app, ["dump", str(folder), "--format", "json"])
    assert done.exit_code == 0
    (document,) = json.loads(done.stdout)
    assert [row["base_offset"] for row in document["entries"]] == [0, 1, 2]
    done = CliRunner().invoke(app, ["dump", str(folder), "--records"])
    assert "vvvvv" in done.stdout
    done = CliRunner().invoke(app, ["dump", str(folder), "-i", "-s", "-c", "--format", "json"])
    assert {Path(each["file"]).suffix for each in json.loads(done.stdout)} >= {".log", ".index", ".metadata"}


def test_verify_exits_with_1_and_names_file_and_position(folder: Path) -> None:
    assert CliRunner().invoke(app, ["verify", str(folder)]).exit_code == 0
    file = folder / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    done = CliRunner().invoke(app, ["verify", str(folder)])
    assert done.exit_code == 1
    assert f"{file}, position " in done.stdout
    assert "checksum" in done.stdout

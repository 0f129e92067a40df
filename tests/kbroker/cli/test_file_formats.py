"""Which format a file has."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from kbroker.cli.file_formats import file_format

NO_PYARROW = "import sys; sys.modules['pyarrow'] = None; from kbroker.cli import main; main(sys.argv[1:])"


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("a.parquet", None, "parquet"),
        ("a.b.CSV", None, "csv"),
        ("a.jsonl.gz", None, "ndjson"),
        ("a.json", None, "ndjson"),
        ("a.txt", "csv", "csv"),
        ("a.csv", "json", "ndjson"),
        ("-", "ndjson", "ndjson"),
    ],
)
def test_the_ending_or_the_option_says_it(name: str, given: str | None, wanted: str) -> None:
    assert file_format(Path(name), given, "--from") == wanted


@pytest.mark.parametrize("name", ["a", "a.txt", "a.gz", "-"])
def test_an_unknown_ending_is_a_usage_error_that_names_the_known_ones(name: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"\.parquet, \.csv, \.ndjson.*--format"):
        file_format(Path(name), None, "--from")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("produce", "t", "--from"), ("consume", "t", "--to")])
def test_without_pyarrow_one_line_says_what_to_install(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    file = tmp_path / "rows.csv"
    if "--from" in arguments:
        file.write_text("a\n1\n")
    command = [sys.executable, "-c", NO_PYARROW, "topic", *arguments, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == "kbroker: files of rows need pyarrow: pip install 'kbroker[arrow]'\n"

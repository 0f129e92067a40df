"""Which format a file of rows has: by `--format`, else by its ending."""

from pathlib import Path
from typing import Literal, get_args

import typer

from kbroker.cli.errors import CommandFailed

FileFormat = Literal["ndjson", "csv", "parquet"]
BY_ENDING: dict[str, FileFormat] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
}
COMPRESSION_BY_ENDING = {".gz": "gzip", ".bz2": "bz2", ".lz4": "lz4", ".zst": "zstd"}
"""Of input; Parquet compresses inside."""


def file_format(path: Path, given: str | None, option: str) -> FileFormat:
    """Return the format of a file that `option` names; a usage error says which endings there are."""
    for known in get_args(FileFormat):
        if given == known:
            return known  # type: ignore[no-any-return]
    if given == "json":
        return "ndjson"
    endings = path.suffixes[-2:]
    if endings and endings[-1].lower() in COMPRESSION_BY_ENDING:
        endings.pop()
    ending = endings[-1].lower() if endings else ""
    if ending not in BY_ENDING:
        has = f"the ending {ending}" if ending else "no ending"
        known_endings = ", ".join(BY_ENDING)
        raise typer.BadParameter(
            f"{path} has {has}, known are {known_endings}: name it so, or give --format ndjson, csv or parquet",
            param_hint=option,
        )
    return BY_ENDING[ending]


def need_pyarrow() -> None:
    """Say what to install where pyarrow is missing."""
    try:
        import kbroker.client.arrow  # noqa: F401
    except ImportError as error:
        raise CommandFailed("files of rows need pyarrow: pip install 'kbroker[arrow]'") from error

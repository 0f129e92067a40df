"""`kbroker log dump|verify PATH`: read and check log files offline, ours or a Java broker's."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from kbroker.cli.errors import CommandFailed
from kbroker.cli.options import Format
from kbroker.cli.output import is_table, print_object, print_rows

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

PathArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="A file, a partition's folder, or a whole log directory.")
]

_BATCH_COLUMNS = (
    "position",
    "base_offset",
    "last_offset",
    "count",
    "size",
    "compression",
    "max_timestamp",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "transactional",
    "control",
    "marker",
    "valid",
)


@app.command()
def dump(
    path: PathArgument,
    records: Annotated[bool, typer.Option("--records", "-r", help="Print records instead of batches.")] = False,
    indexes: Annotated[
        bool, typer.Option("--indexes", "-i", help="Also print .index, .timeindex and .txnindex.")
    ] = False,
    snapshots: Annotated[bool, typer.Option("--snapshots", "-s", help="Also print producer snapshots.")] = False,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", "-c", help="Also print checkpoint files.")] = False,
    output_format: Format = "table",
) -> None:
    """Print what is in log files: batches, or records; a file that is named itself is always printed.

    With --records, those of __consumer_offsets and __transaction_state are told in words.

    \b
    kbroker log dump kbroker-data/broker-1/data/flights-0
    """
    from kbroker.coordinator.record_words import words_for
    from kbroker.protocol.errors import KafkaError
    from kbroker.segment.checkpoints import MalformedCheckpoint
    from kbroker.segment.inspection import dump as rows_of
    from kbroker.segment.inspection import kind_of

    found = _files_at(path)
    if path.is_dir():
        found = [file for file in found if _is_wanted(kind_of(file), indexes, snapshots, checkpoints)]
    damaged = []
    documents = []
    for file in found:
        rows = []
        try:
            for row in rows_of(file, records, words_for(file.absolute().parent.name)):
                rows.append(row)
        except (KafkaError, ValueError, MalformedCheckpoint) as error:
            damaged.append(f"{file}: {error}")
        documents.append({"file": str(file), "entries": [_without_file(row) for row in rows]})
        if is_table(output_format):
            _print_file(file, rows, _columns(kind_of(file), rows, records))
    if not is_table(output_format):
        print_object(documents, output_format)
    if damaged:
        raise CommandFailed("; ".join(damaged))


def _files_at(path: Path) -> list[Path]:
    """Return the files there; to have found none and no damage in them is no good news of a path that was mistaken."""
    from kbroker.segment.inspection import find_files, kind_of

    found = find_files(path)
    if path.is_file() and not kind_of(path):
        raise CommandFailed(f"{path}: no file of a log directory, by its name")
    if not found:
        inside = sorted(str(each) for each in path.iterdir() if each.is_dir() and find_files(each))
        hint = f"; there are in {', '.join(inside[:3])}" if inside else ""
        raise CommandFailed(f"{path}: no files of a log here{hint}")
    return found


def _is_wanted(kind: str, indexes: bool, snapshots: bool, checkpoints: bool) -> bool:
    if kind == ".log":
        return True
    if kind in (".index", ".timeindex", ".txnindex"):
        return indexes
    return snapshots if kind == ".snapshot" else checkpoints


def _without_file(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name != "file"}


def _columns(kind: str, rows: list[dict[str, object]], records: bool) -> list[str]:
    if kind == ".log" and not records:
        return list(_BATCH_COLUMNS)
    return [name for name in rows[0] if name != "file"] if rows else []


def _print_file(file: Path, rows: list[dict[str, object]], columns: list[str]) -> None:
    print(f"{file}: {len(rows)} entries", file=sys.stderr)
    print_rows(rows, columns, "table")


@app.command()
def verify(path: PathArgument, output_format: Format = "table") -> None:
    """Check checksums, offsets and indexes; one line and exit status 1 for each damage found.

    \b
    kbroker log verify kbroker-data/broker-1/data
    """
    from kbroker.segment.inspection import verify as damages_of

    files = _files_at(path)
    damages = [damage for file in files for damage in damages_of(file)]
    if not is_table(output_format):
        print_object({"files": len(files), "damages": [damage._asdict() for damage in damages]}, output_format)
    else:
        for damage in damages:
            place = f", position {damage.position}" if damage.position >= 0 else ""
            print(f"{damage.file}{place}: {damage.problem}")
        print(f"{len(files)} files checked, {len(damages)} damaged places", file=sys.stderr)
    if damages:
        raise typer.Exit(1)

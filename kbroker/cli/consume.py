"""`kbroker topic consume`: records to standard output, with kcat's habits, or as rows of a file."""

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from kbroker.cli.file_formats import FileFormat, file_format, need_pyarrow
from kbroker.cli.interrupts import INTERRUPTED, interrupts
from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from kbroker.cli.profiles import chosen_bootstrap, settings_for
from kbroker.cli.record_copy import Copy, Ends, Sink, TextSink

if TYPE_CHECKING:
    from kbroker import Consumer
    from kbroker.cli.positions import StartPosition
    from kbroker.cli.record_text import Writer

Format = Literal["table", "json", "ndjson", "yaml", "csv", "parquet"]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="Default: all; may be repeated.")
]
Offset = Annotated[
    list[str] | None,
    typer.Option(
        "--offset",
        "-o",
        metavar="start|end|N|-N|@TIME|s@TIME|e@TIME",
        help="Where to begin, from the start unless said: -N is N before the end, @-1h or @2026-01-31 the first record "
        "since then. e@TIME is where to end, and may be given besides.",
    ),
]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Only records with this key.")]
Grep = Annotated[
    str | None,
    typer.Option("--grep", "-g", metavar="REGEX", help="Only records with this in the value; (?i) ignores case."),
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME[=VALUE]", help="Only records with this header; may be repeated."),
]
Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many records.")]
ExitAtEnd = Annotated[
    bool,
    typer.Option("--exit", "-e", help="End where the topic ends now; with --group, when this member's share is read."),
]
Template = Annotated[
    str | None, typer.Option("-f", metavar="FORMAT", help=r"As kcat's: '%t %p %o %T %k %v %h\n', and %v{hex}.")
]
KeyDelimiter = Annotated[
    str | None, typer.Option("--key-delimiter", "-K", help="Write the key and this before each value.")
]
Null = Annotated[bool, typer.Option("--null", "-Z", help="Write a null key or value as NULL.")]
Group = Annotated[
    str | None,
    typer.Option("--group", "-G", help="Read as a member of this group, from where it is; -o is for a new one."),
]
Isolation = Annotated[
    Literal["read-committed", "read-uncommitted"] | None,
    typer.Option("--isolation", help="read-committed leaves aborted and undecided transactions out."),
]
To = Annotated[
    Path | None,
    typer.Option("--to", metavar="FILE", help="Write to this file: .parquet, .csv or .ndjson, or as --format says."),
]
Unpack = Annotated[bool, typer.Option("--unpack", help="Values are JSON objects: their fields are the file's columns.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file of --to.")]
OutputFormat = Annotated[
    Format | None,
    typer.Option("--format", help="Whole records as a table, JSON lines (json, ndjson), YAML, CSV or Parquet."),
]


def consume(
    topics: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="Names of topics; one that begins with ^ is a pattern.")
    ],
    partition: Partitions = None,
    offset: Offset = None,
    count: Count = None,
    exit_at_end: ExitAtEnd = False,
    key: Key = None,
    grep: Grep = None,
    header: Header = None,
    template: Template = None,
    key_delimiter: KeyDelimiter = None,
    null: Null = False,
    group: Group = None,
    to: To = None,
    unpack: Unpack = False,
    overwrite: Overwrite = False,
    isolation: Isolation = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: OutputFormat = None,
) -> None:
    """Read records and write their values to standard output, until Ctrl-C or the end that is asked for.

    \b
    kbroker topic consume flights -o -10 -f '%p %o %k %v\\n'
    kbroker topic consume flights -e --key UA --grep '(?i)delayed' -H source=radar
    kbroker topic consume ^flights -o s@2026-01-31 -o e@2026-02-01T12:00
    kbroker topic consume flights -e --to flights.parquet --unpack
    kbroker topic consume flights --group billing --to billing.ndjson
    """
    from kbroker.cli.positions import parse_range
    from kbroker.cli.record_filter import parse_filter

    try:
        position, until_ms = parse_range(offset or ())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--offset") from None
    wanted = parse_filter(key, grep, header)
    plain = template is None and key_delimiter is None and not null
    kind = _table_format(to, output_format, plain, unpack=unpack, overwrite=overwrite)
    writer = _writer("json" if to else output_format, template, key_delimiter, null) if kind is None else None
    options: dict[str, Any] = {**settings_for("consumer")}
    if isolation is not None:
        options["isolation_level"] = isolation.replace("-", "_")
    if group is not None:
        # What a file holds is committed once it is there, not when it was read.
        options = {"enable_auto_commit": to is None, **group_options(group, partition, position, until_ms), **options}
    names = topic_names(topics, bootstrap)
    from kbroker import Consumer
    from kbroker.cli.admin import check_reach

    check_reach(bootstrap)

    # Ctrl-C is the usual way to end this: it ends the loop, and interrupts nothing.
    with (
        Consumer(chosen_bootstrap(bootstrap), **{"client_id": "kbroker-cli", **options}) as consumer,
        interrupts() as stop,
    ):
        job = Copy(consumer, stop, commits=group is not None and to is not None, wanted=wanted)
        in_group = group is not None
        ends = job.join(names, position) if in_group else begin(consumer, names, partition, position, until_ms)
        goes_on = not exit_at_end and until_ms is None
        with opened(to) as stream:
            if output_format == "table":
                typer.echo(_table_heading())
            sink = _sink(stream, kind, writer, unpack)
            is_whole = job.run(sink, None if goes_on else ends, count, ", ".join(names), to)
    if not is_whole:
        raise typer.Exit(INTERRUPTED)


def topic_names(texts: Sequence[str], bootstrap: str) -> list[str]:
    """Return the topics that are meant; a pattern means those that are there now."""
    patterns = [text for text in texts if text.startswith("^")]
    if not patterns:
        return list(dict.fromkeys(texts))
    from kbroker.cli.admin import with_admin
    from kbroker.cli.errors import CommandFailed
    from kbroker.cli.record_filter import compiled

    known = with_admin(bootstrap, lambda admin: admin.list_topics())
    found = [text for text in texts if not text.startswith("^")]
    for pattern in patterns:
        expression = compiled(pattern, "TOPIC")
        found += [name for name in known if expression.match(name)]
    if not found:
        raise CommandFailed(f"no topic matches {' or '.join(patterns)}")
    return list(dict.fromkeys(found))


def group_options(
    group: str, partitions: Sequence[int] | None, position: "StartPosition", until_ms: int | None = None
) -> dict[str, Any]:
    """Return a member's settings; a usage error says what goes not together."""
    if partitions:
        raise typer.BadParameter("the group gives the partitions out", param_hint="--partition")
    if position.kind not in ("start", "end") or until_ms is not None:
        raise typer.BadParameter("in a group only start and end", param_hint="--offset")
    return {"group_id": group, "auto_offset_reset": "earliest" if position.kind == "start" else "latest"}


def begin(
    consumer: "Consumer",
    topics: Sequence[str],
    partitions: Sequence[int] | None,
    position: "StartPosition",
    until_ms: int | None = None,
) -> Ends:
    """Assign the partitions and seek in each; return where each ends now, or ended at that time."""
    from kbroker import TopicPartition
    from kbroker.cli.positions import start_offset

    if partitions:
        consumer.assign([TopicPartition(topic, number) for topic in topics for number in dict.fromkeys(partitions)])
    else:
        consumer.subscribe(topics)
    chosen = consumer.assignment()
    first = consumer.beginning_offsets(chosen)
    ends = consumer.end_offsets(chosen)
    times: dict[TopicPartition, Any] = {}
    if position.kind == "timestamp":
        times = consumer.offsets_for_times(dict.fromkeys(chosen, position.value))
    for one in chosen:
        found = times.get(one)
        consumer.seek(one, start_offset(position, first[one], ends[one], None if found is None else found.offset))
    if until_ms is not None:
        stops = consumer.offsets_for_times(dict.fromkeys(chosen, until_ms))
        ends = {one: end if (stop := stops.get(one)) is None else min(end, stop.offset) for one, end in ends.items()}
    return ends


def _sink(stream: IO[bytes], kind: FileFormat | None, writer: "Writer | None", unpack: bool) -> Sink:
    if writer is not None:
        return TextSink(stream, writer)
    assert kind is not None
    from kbroker.cli.table_output import TableSink

    return TableSink(stream, kind, unpack=unpack)


@contextlib.contextmanager
def opened(to: Path | None) -> Iterator[IO[bytes]]:
    """Yield the file, or standard output: what takes all that it is given to write, or raises."""
    if to is not None:
        with to.open("wb") as stream:
            yield stream
    elif isinstance(sys.stdout.buffer, io.RawIOBase):
        # With PYTHONUNBUFFERED: its write() takes only a part when a signal comes or the reader goes.
        with open(sys.stdout.fileno(), "wb", closefd=False) as stream:
            yield stream
    else:
        yield sys.stdout.buffer


def _table_format(
    to: Path | None, output_format: Format | None, plain: bool, *, unpack: bool, overwrite: bool
) -> FileFormat | None:
    """Return the format of rows, None for lines of text or JSON; a usage error says what goes not together."""
    if to is None and output_format not in ("csv", "parquet") and not unpack:
        return None
    if not plain:
        raise typer.BadParameter("-f, -K and -Z write lines of text, not rows", param_hint="--to")
    if output_format in ("table", "yaml"):
        raise typer.BadParameter(
            f"{output_format} is no format of rows: csv, parquet and ndjson are", param_hint="--format"
        )
    if to is None:
        kind = file_format(Path("-"), output_format or "ndjson", "--format")
        if kind == "parquet" and sys.stdout.isatty():
            raise typer.BadParameter("a terminal cannot show Parquet: give --to FILE", param_hint="--format")
    else:
        kind = file_format(to, output_format, "--to")
        if to.is_dir() or not to.absolute().parent.is_dir():
            raise typer.BadParameter(f"{to} cannot be made: its folder is missing, or it is one", param_hint="--to")
        if to.exists() and not overwrite:
            raise typer.BadParameter(f"{to} is there already: --overwrite replaces it", param_hint="--to")
    if kind == "ndjson" and not unpack:
        return None
    need_pyarrow()
    return kind


def _writer(output_format: Format | None, template: str | None, key_delimiter: str | None, null: bool) -> "Writer":
    from kbroker.cli import record_text

    if output_format is not None:
        if template is not None:
            raise typer.BadParameter("-f and --format exclude each other", param_hint="-f")
        if output_format == "yaml":
            return record_text.yaml_documents
        return record_text.table_lines if output_format == "table" else record_text.json_lines
    from kbroker.cli.output import for_terminal
    from kbroker.cli.record_format import compile_format

    key = "" if key_delimiter is None else "%k" + key_delimiter.replace("%", "%%")
    try:
        write = compile_format(
            template if template is not None else key + r"%v\n",
            null=b"NULL" if null else b"",
            shown=for_terminal if sys.stdout.isatty() else None,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="-f") from None
    return lambda records: b"".join([write(record) for record in records])


def _table_heading() -> str:
    from kbroker.cli.record_text import TABLE_COLUMNS, TABLE_LINE

    return TABLE_LINE.format(*TABLE_COLUMNS)

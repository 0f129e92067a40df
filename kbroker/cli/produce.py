"""`kbroker topic produce`: lines of standard input, files, or rows of a file become records."""

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from kbroker.cli.errors import CommandFailed, one_line, with_next_step
from kbroker.cli.file_formats import FileFormat, file_format, need_pyarrow
from kbroker.cli.interrupts import INTERRUPTED
from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, parse_settings
from kbroker.cli.profiles import chosen_bootstrap, settings_for

if TYPE_CHECKING:
    from kbroker.cli.table_input import TableInput
    from kbroker.client.delivery import Delivery

CHUNK_BYTES = 1 << 20
RESULT_TIMEOUT_S = 150.0
LOOK_EVERY = 10_000

Record = tuple[bytes | None, bytes | None]
"""Key and value."""


Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[FILE]...",
        exists=True,
        dir_okay=False,
        help="Each file is one record. Default: each line of standard input is one.",
    ),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="Each row of this Parquet, CSV or NDJSON file is a record, its value the row as a JSON object. "
        "- is standard input.",
    ),
]
Key = Annotated[
    str | None, typer.Option("--key", "-k", help="Key of every record; with --from: the column that is the key.")
]
ValueColumn = Annotated[
    str | None, typer.Option("--value", metavar="COLUMN", help="With --from: this column alone is the value.")
]
TimeColumn = Annotated[
    str | None, typer.Option("--timestamp", metavar="COLUMN", help="With --from: the records' times. Default: now.")
]
ColumnTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="COLUMN=TYPE",
        help="With --from, of CSV: string, int64, double, bool, date32, timestamp[ms]… Default: what the first rows "
        "look like. May be repeated.",
    ),
]
Skip = Annotated[int, typer.Option("--skip", min=0, help="With --from: leave out the first so many rows.")]
InputFormat = Annotated[
    FileFormat | None, typer.Option("--format", help="With --from: what the file's ending does not say.")
]
RecordHeaders = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Of every record; may be repeated.")
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Default: by the key's hash, else by turns.")
]
KeyDelimiter = Annotated[
    str | None, typer.Option("--key-delimiter", "-K", help="Ends the key at the start of each record.")
]
Delimiter = Annotated[str, typer.Option("--delimiter", "-D", help="Between records on standard input.")]
Lines = Annotated[bool, typer.Option("--lines", "-l", help="Each line of the files is a record.")]
Null = Annotated[bool, typer.Option("--null", "-Z", help="An empty key or value is null.")]
Compression = Annotated[
    Literal["none", "gzip", "snappy", "lz4", "zstd"], typer.Option("--compression", "-z", help="How to compress.")
]
Acks = Annotated[Literal["all", "1", "0"], typer.Option(help="Whose word to wait for.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say where each record is: topic, partition and offset.")
]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    files: Files = None,
    source: From = None,
    key: Key = None,
    value: ValueColumn = None,
    timestamp: TimeColumn = None,
    column_type: ColumnTypes = None,
    skip: Skip = 0,
    input_format: InputFormat = None,
    header: RecordHeaders = None,
    partition: Partition = None,
    key_delimiter: KeyDelimiter = None,
    delimiter: Delimiter = r"\n",
    lines: Lines = False,
    null: Null = False,
    compression: Compression = "none",
    acks: Acks = "all",
    verbose: Verbose = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write records: lines of standard input, files, or the rows of a table.

    How many are written goes to standard error.

    \b
    echo 'UA:late' | kbroker topic produce flights -K :
    kbroker topic produce flights --from flights.parquet --key carrier
    kbroker topic produce flights --from flights.csv.gz --key tailnum --type tailnum=string
    """
    options: dict[str, Any] = {
        **settings_for("producer"),
        "compression": compression,
        "acks": acks,
    }
    headers = [_header(text) for text in header or ()]
    if source is not None:
        if files or lines or null or verbose or key_delimiter is not None or delimiter != r"\n":
            raise typer.BadParameter(
                "files, -l, -Z, -K, -D and -v go not with it: a row is a record", param_hint="--from"
            )
        if str(source) != "-" and not source.is_file():
            raise typer.BadParameter(f"there is no file {source}", param_hint="--from")
        columns = {"key": key, "value": value, "timestamp": timestamp}
        chosen = {role: name for role, name in columns.items() if name is not None}
        table_input = _table_input(source, file_format(source, input_format, "--from"), chosen, column_type)
        from kbroker.cli.produce_table import send_file

        send_file(table_input, topic, bootstrap, options, headers=headers, partition=partition, skip=skip)
        return
    if value is not None or timestamp is not None or column_type or skip or input_format is not None:
        raise typer.BadParameter("is needed for --value, --timestamp, --type, --skip and --format", param_hint="--from")
    splitter = _delimiter(key_delimiter, "--key-delimiter") if key_delimiter is not None else None
    between = _delimiter(delimiter, "--delimiter")
    fixed_key = None if key is None else key.encode()
    texts = _texts(files or [], between, lines)
    records = (to_record(text, fixed_key, splitter, null) for text in texts)
    _send(records, topic, headers, partition, options, bootstrap, verbose=verbose)


def _table_input(path: Path, kind: FileFormat, columns: dict[str, str], column_types: list[str] | None) -> "TableInput":
    types = parse_settings(column_types, "--type")
    if types and kind != "csv":
        raise typer.BadParameter(f"{kind} files have types of their own", param_hint="--type")
    need_pyarrow()
    from kbroker.cli.table_input import TableInput, column_type

    try:
        parsed = {name: column_type(text) for name, text in types.items()}
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--type") from None
    return TableInput(path, kind, columns, parsed)


def _send(
    records: Iterator[Record],
    topic: str,
    headers: list[tuple[str, bytes | None]],
    partition: int | None,
    options: dict[str, Any],
    bootstrap: str,
    *,
    verbose: bool,
) -> None:
    from kbroker import Producer
    from kbroker.cli.admin import check_reach

    check_reach(bootstrap)
    interrupted = False
    told = Told(verbose=verbose)
    with Producer(chosen_bootstrap(bootstrap), **{"client_id": "kbroker-cli", **options}) as producer:
        try:
            for key, value in records:
                try:
                    told.add(producer.send(topic, value=value, key=key, headers=headers, partition=partition))
                except Exception as error:
                    told.fail(told.sent + 1, error)
                if told.failure is not None:
                    break
        except KeyboardInterrupt:
            interrupted = True  # what was read is sent; only a second time gives it up
        producer.flush()
    told.settle(RESULT_TIMEOUT_S)
    count = counted(told.written, topic, options)
    if told.failure is not None:
        number, reason = told.failure
        raise CommandFailed(f"{reason} ({count}; record {number} is the first that is not)")
    print(count, file=sys.stderr)
    if interrupted:
        raise typer.Exit(INTERRUPTED)


def counted(count: int, topic: str, options: Mapping[str, Any]) -> str:
    """Say how many records are written, as well as a producer of these options knows."""
    records = f"{count} record{'' if count == 1 else 's'}"
    if options["acks"] == "0":
        return f"{records} sent to {topic}, which nobody acknowledges (--acks 0)"
    return f"{records} written to {topic}"


class Told:
    """What becomes of the records that are sent, which are counted from 1."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._waiting: deque[tuple[int, Delivery]] = deque()
        self.sent = 0
        self.written = 0
        self.failure: tuple[int, str] | None = None
        """The first that is not written, of those that are known, and why."""

    def add(self, delivery: "Delivery") -> None:
        """Take one more, and look now and then what has become of the others."""
        self.sent += 1
        self._waiting.append((self.sent, delivery))
        if self.sent % LOOK_EVERY == 0:
            self.settle(None)

    def settle(self, timeout: float | None) -> None:
        """See what has become of all, None: of those that need no waiting; where each is may be said."""
        # One by one, as Ctrl-C may come in between; what one partition keeps back hides nothing of the others.
        for _ in range(len(self._waiting)):
            number, delivery = self._waiting[0]
            if timeout is None and not delivery.done():
                self._waiting.rotate(-1)
                continue
            try:
                place = delivery.result(timeout)
            except Exception as error:
                self.fail(number, error)
                self._waiting.popleft()
                continue
            self._waiting.popleft()
            self.written += 1
            if self._verbose:
                print(f"{place.topic} {place.partition} {place.offset}")

    def fail(self, number: int, error: Exception) -> None:
        """Keep why a record is not written; what is a bug of ours is raised."""
        reason = one_line(error)
        if reason is None:
            raise error
        if self.failure is None or number < self.failure[0]:
            self.failure = number, with_next_step(error, reason)


def to_record(text: bytes, key: bytes | None, splitter: bytes | None, empty_is_null: bool) -> Record:
    """Return key and value of one input text."""
    value: bytes | None = text
    if splitter is not None:
        front, found, rest = text.partition(splitter)
        if found:
            key, value = front, rest
    if empty_is_null:
        key, value = key or None, value or None
    return key, value


def split(stream: IO[bytes], delimiter: bytes) -> Iterator[bytes]:
    """Yield what lies between delimiters; nothing after the last one is no record."""
    rest = b""
    while chunk := stream.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
        *whole, rest = (rest + chunk).split(delimiter)
        yield from whole
    if rest:
        yield rest


def _texts(files: list[Path], delimiter: bytes, lines: bool) -> Iterator[bytes]:
    if not files:
        yield from split(sys.stdin.buffer, delimiter)
    for file in files:
        if lines:
            with file.open("rb") as stream:
                yield from split(stream, delimiter)
        else:
            yield file.read_bytes()


def _delimiter(text: str, option: str) -> bytes:
    from kbroker.cli.record_format import parse_delimiter

    try:
        delimiter = parse_delimiter(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if not delimiter:
        raise typer.BadParameter("a delimiter has at least one character", param_hint=option)
    return delimiter


def _header(text: str) -> tuple[str, bytes | None]:
    """Read NAME=VALUE; a name alone has the value null, as in kcat."""
    name, equals, value = text.partition("=")
    if not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, value.encode() if equals else None

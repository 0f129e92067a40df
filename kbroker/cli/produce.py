"""`kbroker topic produce`: lines of standard input, or files, become records."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientSetting, parse_settings

if TYPE_CHECKING:
    from kbroker.client.accumulator import Delivery

CHUNK_BYTES = 1 << 20
RESULT_TIMEOUT_S = 150.0

Record = tuple[bytes | None, bytes | None]
"""Key and value."""


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", exists=True, dir_okay=False, help="Each file is one record."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="May be repeated.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Default: by the key's hash, else by turns.")
    ] = None,
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", help="Ends the key at the start of each record.")
    ] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", "-D", help="Between records on standard input.")] = r"\n",
    lines: Annotated[bool, typer.Option("--lines", "-l", help="Each line of the files is a record.")] = False,
    null: Annotated[bool, typer.Option("--null", "-Z", help="An empty key or value is null.")] = False,
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], typer.Option("--compression", "-z", help="How to compress.")
    ] = "none",
    acks: Annotated[Literal["all", "1", "0"], typer.Option(help="Whose word to wait for.")] = "all",
    setting: ClientSetting = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write records; how many goes to standard error."""
    options: dict[str, Any] = {**parse_settings(setting, "-X"), "compression": compression, "acks": acks}
    headers = [_header(text) for text in header or ()]
    splitter = _delimiter(key_delimiter, "--key-delimiter") if key_delimiter is not None else None
    between = _delimiter(delimiter, "--delimiter")
    fixed_key = None if key is None else key.encode()
    texts = _texts(files or [], between, lines)
    records = (to_record(text, fixed_key, splitter, null) for text in texts)
    _send(records, topic, headers, partition, options, bootstrap)


def _send(
    records: Iterator[Record],
    topic: str,
    headers: list[tuple[str, bytes | None]],
    partition: int | None,
    options: dict[str, Any],
    bootstrap: str,
) -> None:
    from kbroker import Producer

    count = 0
    futures: list[Delivery] = []
    with Producer(bootstrap, **{"client_id": "kbroker-cli", **options}) as producer:
        for key, value in records:
            futures.append(producer.send(topic, value=value, key=key, headers=headers, partition=partition))
            count += 1
            if len(futures) >= 10_000:
                futures = _checked(futures)
        producer.flush()
    for future in futures:
        future.result(RESULT_TIMEOUT_S)
    print(f"{count} record{'' if count == 1 else 's'} written to {topic}", file=sys.stderr)


def _checked(futures: "list[Delivery]") -> "list[Delivery]":
    """Raise what went wrong with those that are done; return the others."""
    waiting = []
    for future in futures:
        if future.done():
            future.result(0)
        else:
            waiting.append(future)
    return waiting


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

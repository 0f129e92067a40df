"""`kbroker topic consume`: records to standard output, with kcat's habits."""

import base64
import json
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbroker.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientSetting, OutputFormat, parse_settings

if TYPE_CHECKING:
    from kbroker import Consumer, TopicPartition
    from kbroker.cli.positions import StartPosition
    from protocol.records.record import Record

POLL_SECONDS = 0.2
TABLE_COLUMNS = ("partition", "offset", "timestamp", "key", "value")
TABLE_LINE = "{:>9}  {:>12}  {:<24}  {:<20}  {}"

Writer = Callable[[Sequence["Record"]], bytes]


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Default: all; may be repeated.")
    ] = None,
    offset: Annotated[
        str,
        typer.Option("--offset", "-o", metavar="start|end|N|-N|@TIME", help="Where to begin; -N: N before the end."),
    ] = "start",
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many records.")] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="End where the topic ends now.")] = False,
    template: Annotated[
        str | None, typer.Option("-f", metavar="FORMAT", help=r"As kcat's: '%t %p %o %T %k %v %h\n'.")
    ] = None,
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", help="Write the key and this before each value.")
    ] = None,
    null: Annotated[bool, typer.Option("--null", "-Z", help="Write a null key or value as NULL.")] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", "-G", help="Read as a member of this group, from where it is; -o is for a new one."),
    ] = None,
    setting: ClientSetting = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output_format: Annotated[
        OutputFormat | None, typer.Option("--format", help="Whole records as table, JSON lines or YAML.")
    ] = None,
) -> None:
    """Read records and write their values to standard output, until Ctrl-C or the end that is asked for."""
    from kbroker.cli.positions import parse_position

    try:
        position = parse_position(offset)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--offset") from None
    writer = _writer(output_format, template, key_delimiter, null)
    options: dict[str, Any] = dict(parse_settings(setting, "-X"))
    from kbroker import Consumer

    if group is not None:
        options = {**group_options(group, partition, position), **options}
    with Consumer(bootstrap, **{"client_id": "kbroker-cli", **options}) as consumer:
        ends = begin(consumer, topic, partition, position) if group is None else join(consumer, topic)
        if output_format == "table":
            typer.echo(TABLE_LINE.format(*TABLE_COLUMNS))
        # Ctrl-C is the usual way to end this: it ends the loop, and interrupts nothing.
        stop: list[int] = []
        signal.signal(signal.SIGINT, lambda number, frame: stop.append(number))
        copy(consumer, writer, ends if exit_at_end else None, count, stop)


def group_options(group: str, partitions: Sequence[int] | None, position: "StartPosition") -> dict[str, Any]:
    """Return a member's settings; a usage error says what goes not together."""
    if partitions:
        raise typer.BadParameter("the group gives the partitions out", param_hint="--partition")
    if position.kind not in ("start", "end"):
        raise typer.BadParameter("in a group only start and end", param_hint="--offset")
    return {"group_id": group, "auto_offset_reset": "earliest" if position.kind == "start" else "latest"}


def join(consumer: "Consumer", topic: str) -> "dict[TopicPartition, int]":
    """Join the group; return where the topic ends now."""
    from kbroker import TopicPartition

    ends = consumer.end_offsets([TopicPartition(topic, number) for number in consumer.partitions_for(topic)])
    consumer.subscribe([topic])
    return ends


def begin(
    consumer: "Consumer", topic: str, partitions: Sequence[int] | None, position: "StartPosition"
) -> "dict[TopicPartition, int]":
    """Assign the partitions and seek in each; return where each ends now."""
    from kbroker import TopicPartition
    from kbroker.cli.positions import start_offset

    if partitions:
        consumer.assign([TopicPartition(topic, number) for number in dict.fromkeys(partitions)])
    else:
        consumer.subscribe([topic])
    chosen = consumer.assignment()
    first = consumer.beginning_offsets(chosen)
    ends = consumer.end_offsets(chosen)
    times: dict[TopicPartition, Any] = {}
    if position.kind == "timestamp":
        times = consumer.offsets_for_times(dict.fromkeys(chosen, position.value))
    for one in chosen:
        found = times.get(one)
        consumer.seek(one, start_offset(position, first[one], ends[one], None if found is None else found.offset))
    return ends


def copy(
    consumer: "Consumer",
    writer: Writer,
    ends: "dict[TopicPartition, int] | None",
    count: int | None,
    stop: Sequence[int] = (),
) -> None:
    """Write records until there were `count`, to each of `ends` (None: for ever), or until `stop` holds something.

    A member of a group ends when what it has been given is read; it writes all of it, as all of it is committed.
    """
    out = sys.stdout.buffer
    sys.stdout.flush()
    left = count
    while not stop and (ends is None or not _reached(consumer, ends)):
        records: Sequence[Record] = consumer.poll(POLL_SECONDS, left)
        if ends is not None and not consumer.in_group:
            records = [record for record in records if record.offset < ends[(record.topic, record.partition)]]  # type: ignore[index]
        out.write(writer(records))
        out.flush()
        if left is not None:
            left -= len(records)
            if left <= 0:
                return


def _reached(consumer: "Consumer", ends: "dict[TopicPartition, int]") -> bool:
    if not consumer.in_group:
        return all(consumer.position(partition) >= end for partition, end in ends.items())
    positions = consumer.positions
    return bool(positions) and all(offset >= ends.get(partition, 0) for partition, offset in positions.items())


def _writer(output_format: OutputFormat | None, template: str | None, key_delimiter: str | None, null: bool) -> Writer:
    if output_format is not None:
        if template is not None:
            raise typer.BadParameter("-f and --format exclude each other", param_hint="-f")
        return {"json": _json_lines, "yaml": _yaml_documents, "table": _table_lines}[output_format]
    from kbroker.cli.record_format import compile_format

    key = "" if key_delimiter is None else "%k" + key_delimiter.replace("%", "%%")
    try:
        write = compile_format(template if template is not None else key + r"%v\n", null=b"NULL" if null else b"")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="-f") from None
    return lambda records: b"".join([write(record) for record in records])


def as_object(record: "Record") -> dict[str, Any]:
    """Return a record as JSON can hold it: bytes that are no UTF-8 text come as {"base64": …}."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _readable(record.key),
        "value": _readable(record.value),
        "headers": [[name, _readable(value)] for name, value in record.headers],
    }


def _readable(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _json_lines(records: "Iterable[Record]") -> bytes:
    return b"".join([json.dumps(as_object(record), ensure_ascii=False).encode() + b"\n" for record in records])


def _yaml_documents(records: "Iterable[Record]") -> bytes:
    import yaml

    objects = [as_object(record) for record in records]
    if not objects:
        return b""
    text: str = yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, explicit_start=True)
    return text.encode()


def _table_lines(records: "Iterable[Record]") -> bytes:
    lines = []
    for record in records:
        moment = datetime.fromtimestamp(record.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
        key, value = (_cell(_readable(part)) for part in (record.key, record.value))
        lines.append(TABLE_LINE.format(record.partition, record.offset, moment.replace("+00:00", "Z"), key, value))
    return "".join(f"{line}\n" for line in lines).encode()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("\n", "\\n")

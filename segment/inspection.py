"""Read and check storage files offline: ours or a Java broker's, as they lie on disk, changing nothing."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kbroker.protocol.errors import KafkaError
from kbroker.protocol.primitives import uuid_to_text
from kbroker.protocol.records.batch import BatchHeader, verify_crc
from kbroker.protocol.records.compression import CompressionType
from kbroker.protocol.records.control import read_marker
from kbroker.protocol.records.errors import InvalidRecord
from kbroker.protocol.records.message_set import has_header, messages, read_any_header
from kbroker.protocol.records.record import Record, decode_batch
from kbroker.segment import checkpoints, names, offset_index, time_index, transaction_index
from kbroker.segment.files import Files
from kbroker.segment.producer_state import read_snapshot

Row = dict[str, Any]
RecordWords = Callable[[bytes | None, bytes | None], tuple[Any, Any]]
"""Takes a record's key and value, and says what they are."""

_CHECKPOINTS = (checkpoints.RECOVERY_POINTS, checkpoints.LOG_START_OFFSETS, checkpoints.HIGH_WATERMARKS)
_TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"


class Damage(NamedTuple):
    """Something wrong in a file."""

    file: str
    position: int
    """Byte position; -1 where the whole file is meant."""
    problem: str


class _Batch(NamedTuple):
    position: int
    header: BatchHeader


def find_files(path: Path) -> list[Path]:
    """The storage files at a path: the file itself, or those of a partition's folder or a log directory."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    found = [file for file in path.iterdir() if file.is_file() and kind_of(file)]
    for folder in path.iterdir():
        if folder.is_dir() and names.parse_folder_name(folder.name):
            found += [file for file in folder.iterdir() if file.is_file() and kind_of(file)]
    return sorted(found)


def kind_of(file: Path) -> str:
    """Which of the formats a file has, "" when it is none of storage's."""
    parsed = names.parse_file_name(file.name)
    if parsed is not None:
        return parsed.suffix
    known = (names.LEADER_EPOCHS, names.PARTITION_METADATA, checkpoints.META_PROPERTIES)
    return file.name if file.name in (*known, *_CHECKPOINTS, _CLEANER_CHECKPOINT) else ""


def _base_offset(file: Path) -> int:
    parsed = names.parse_file_name(file.name)
    assert parsed is not None
    return parsed.offset


# ---------------------------------------------------------------------- dump


def dump(file: Path, with_records: bool = False, words: RecordWords | None = None) -> Iterator[Row]:
    """What a file says, row by row. Raises KafkaError, ValueError or MalformedCheckpoint where it makes no sense.

    `words`: what reads the keys and values of records, if it is not for their owner alone to read them.
    """
    kind = kind_of(file)
    if kind == names.LOG:
        yield from _dump_log(file, with_records, words or _texts)
    elif kind in _TABLES:
        yield from _TABLES[kind](file)
    elif kind:
        yield from _dump_checkpoint(file)
    else:
        raise ValueError(f"{file}: not a file of a log directory")


def _batches(data: memoryview) -> Iterator[_Batch]:
    position = 0
    while has_header(data, position):
        header = read_any_header(data, position)
        yield _Batch(position, header)
        position += header.size


def _dump_log(file: Path, with_records: bool, words: RecordWords) -> Iterator[Row]:
    data = memoryview(file.read_bytes())
    for position, header in _batches(data):
        if not with_records:
            yield _batch_row(file, data, position, header)
            continue
        try:
            records = _records(data, position, header)
        except KafkaError as error:
            raise ValueError(f"position {position}: {error.message}") from None
        for record in records:
            is_marker = header.is_control
            key, value = (_marker(data, position, header), None) if is_marker else words(record.key, record.value)
            yield {
                "file": file.name,
                "position": position,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": key,
                "value": value,
                "headers": [f"{name}={_text(value)}" for name, value in record.headers],
            }


def _records(data: memoryview, position: int, header: BatchHeader) -> list[Record]:
    """The records of a batch, or of a message of old. Raises KafkaError."""
    if header.magic == 2:
        return decode_batch(data, position)
    return [Record(*message) for message in messages(data, position, header.size)]


def _batch_row(file: Path, data: memoryview, position: int, header: BatchHeader) -> Row:
    is_valid = verify_crc(data, position, header.size)
    base_offset, count = header.base_offset, header.count
    if header.magic < 2 and header.compression and is_valid:
        with contextlib.suppress(KafkaError):
            inside = messages(data, position, header.size)
            base_offset, count = inside[0].offset, len(inside)
    return {
        "file": file.name,
        "position": position,
        "magic": header.magic,
        "base_offset": base_offset,
        "last_offset": header.last_offset,
        "count": count,
        "size": header.size,
        "compression": CompressionType(header.compression).name.lower(),
        "timestamp_type": _TIMESTAMP_TYPES[header.timestamp_type if header.magic else -1],
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "marker": _marker(data, position, header) if header.is_control and is_valid else None,
        "crc": f"{header.crc:08x}",
        "valid": is_valid,
    }


def _marker(data: memoryview, position: int, header: BatchHeader) -> str | None:
    """What a control batch says: the decision and the coordinator's epoch; None where compaction left it empty."""
    try:
        kind, epoch = read_marker(data, position, header.size)
    except InvalidRecord:
        return None
    return f"{kind.name} (coordinator epoch {epoch})"


def _texts(key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    return _text(key), _text(value)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _entries(file: Path, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(position, fields) of an index's entries, without the zeros that a running Java broker keeps at the end."""
    data = file.read_bytes()
    filled = len(data.rstrip(b"\0"))
    used = -(-filled // entry.size) * entry.size
    for position in range(0, min(used, len(data) - len(data) % entry.size), entry.size):
        yield position, entry.unpack_from(data, position)


def _dump_offset_index(file: Path) -> Iterator[Row]:
    base = _base_offset(file)
    for _, (relative, position) in _entries(file, offset_index.ENTRY):
        yield {"file": file.name, "offset": base + relative, "position": position}


def _dump_time_index(file: Path) -> Iterator[Row]:
    base = _base_offset(file)
    for _, (timestamp, relative) in _entries(file, time_index.ENTRY):
        yield {"file": file.name, "timestamp": timestamp, "offset": base + relative}


def _dump_transactions(file: Path) -> Iterator[Row]:
    data = file.read_bytes()
    for position in range(0, len(data), transaction_index.ENTRY.size):
        yield {"file": file.name, **transaction_index.parse_entry(data, position)._asdict()}


def _dump_snapshot(file: Path) -> Iterator[Row]:
    for entry in read_snapshot(file.read_bytes()):
        last = entry.batches[-1] if entry.batches else None
        yield {
            "file": file.name,
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": last.last_sequence if last else -1,
            "last_offset": last.last_offset if last else -1,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.transaction_first_offset,
        }


def _dump_checkpoint(file: Path) -> Iterator[Row]:
    files, path = Files(), str(file)
    if file.name == names.LEADER_EPOCHS:
        for epoch, start in checkpoints.read_leader_epochs(files, path):
            yield {"file": file.name, "epoch": epoch, "start_offset": start}
    elif file.name == names.PARTITION_METADATA:
        yield {"file": file.name, "topic_id": uuid_to_text(checkpoints.read_topic_id(files, path))}
    elif file.name == checkpoints.META_PROPERTIES:
        yield {"file": file.name, **(checkpoints.read_properties(files, path) or {})}
    else:
        for (topic, partition), offset in checkpoints.read_offsets(files, path).items():
            yield {"file": file.name, "topic": topic, "partition": partition, "offset": offset}


_TABLES: dict[str, Callable[[Path], Iterator[Row]]] = {
    names.INDEX: _dump_offset_index,
    names.TIME_INDEX: _dump_time_index,
    names.TRANSACTION_INDEX: _dump_transactions,
    names.SNAPSHOT: _dump_snapshot,
}


# ---------------------------------------------------------------------- verify


def verify(file: Path) -> list[Damage]:
    """Everything that is wrong with a file: checksums, ascending offsets, index entries that lead nowhere."""
    kind = kind_of(file)
    if kind == names.LOG:
        return _verify_log(file)
    if kind == names.INDEX:
        return _verify_offset_index(file)
    if kind == names.TIME_INDEX:
        return _verify_time_index(file)
    try:
        for _ in dump(file):
            pass
    except (ValueError, checkpoints.MalformedCheckpoint) as error:
        return [Damage(str(file), -1, str(error))]
    return []


def _verify_log(file: Path) -> list[Damage]:
    data = memoryview(file.read_bytes())
    damages: list[Damage] = []
    floor = _base_offset(file)
    position = 0
    while position < len(data):
        if not has_header(data, position):
            return [*damages, Damage(str(file), position, f"{len(data) - position} bytes are no batch header")]
        try:
            header = read_any_header(data, position)
        except KafkaError as error:
            return [*damages, Damage(str(file), position, error.message)]
        if position + header.size > len(data):
            problem = (
                f"the batch at offset {header.base_offset} has {header.size} bytes, {len(data) - position} are there"
            )
            return [*damages, Damage(str(file), position, problem)]
        problem = _batch_problem(data, position, header, floor)
        if problem:
            damages.append(Damage(str(file), position, problem))
        floor = max(floor, header.next_offset)
        position += header.size
    return damages


def _batch_problem(data: memoryview, position: int, header: BatchHeader, floor: int) -> str:
    if not verify_crc(data, position, header.size):
        return f"the batch at offset {header.base_offset} does not match its checksum"
    if header.base_offset < floor:
        return f"offset {header.base_offset} follows {floor - 1}"
    try:
        _records(data, position, header)
    except KafkaError as error:
        return f"the batch at offset {header.base_offset} cannot be read: {error.message}"
    return ""


def _batch_starts(file: Path) -> dict[int, BatchHeader]:
    """Position -> header of the batches in the log beside an index, as far as it can be read."""
    starts: dict[int, BatchHeader] = {}
    log_file = file.with_suffix(names.LOG)
    if log_file.exists():
        try:
            for position, header in _batches(memoryview(log_file.read_bytes())):
                starts[position] = header
        except KafkaError:
            pass  # the log's own verification tells
    return starts


def _verify_offset_index(file: Path) -> list[Damage]:
    starts, base = _batch_starts(file), _base_offset(file)
    damages = _size_damage(file, offset_index.ENTRY.size)
    previous = (-1, -1)
    for place, (relative, position) in _entries(file, offset_index.ENTRY):
        header = starts.get(position)
        if relative <= previous[0] or position <= previous[1]:
            damages.append(Damage(str(file), place, f"entry ({relative}, {position}) follows {previous}"))
        elif header is None:
            damages.append(Damage(str(file), place, f"no batch begins at position {position} of the log"))
        elif header.base_offset > base + relative:
            problem = f"offset {base + relative} does not lie behind position {position} (offset {header.base_offset})"
            damages.append(Damage(str(file), place, problem))
        previous = (relative, position)
    return damages


def _verify_time_index(file: Path) -> list[Damage]:
    damages = _size_damage(file, time_index.ENTRY.size)
    previous = (-1, -1)
    for place, (timestamp, relative) in _entries(file, time_index.ENTRY):
        if timestamp <= previous[0] or relative < previous[1]:
            damages.append(Damage(str(file), place, f"entry ({timestamp}, {relative}) follows {previous}"))
        previous = (timestamp, relative)
    base = _base_offset(file)
    largest = previous[0]
    for header in _batch_starts(file).values():
        if previous[1] >= 0 and header.last_offset <= base + previous[1] and header.max_timestamp > largest:
            problem = (
                f"offset {header.last_offset} has timestamp {header.max_timestamp}, above the last entry's {largest}"
            )
            damages.append(Damage(str(file), -1, problem))
            break
    return damages


def _size_damage(file: Path, entry_size: int) -> list[Damage]:
    size = file.stat().st_size
    if size % entry_size == 0:
        return []
    return [
        Damage(str(file), size - size % entry_size, f"{size} bytes are no whole number of {entry_size}-byte entries")
    ]

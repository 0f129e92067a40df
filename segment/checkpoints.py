"""Small text files that survive a restart.

recovery-point-offset-checkpoint        0                   version
log-start-offset-checkpoint             2                   number of entries
replication-offset-checkpoint           orders 0 1234       topic partition offset
cleaner-offset-checkpoint               orders 1 77

leader-epoch-checkpoint                 the same, an entry being "<epoch> <start offset>"
partition.metadata                      version: 0 / topic_id: <22 characters>
meta.properties                         #<date> / cluster.id=… / version=0 / broker.id=…
.kafka_cleanshutdown                    {"version":0,"brokerEpoch":-1}
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import pairwise

from kbroker.protocol.primitives import ZERO_UUID, uuid_from_text, uuid_to_text
from kbroker.segment.files import Files

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
FIRST_DIRTY_OFFSETS = "cleaner-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
OFFSETS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, FIRST_DIRTY_OFFSETS)
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
BOOT = "kbroker-boot-id"
SESSION = "kbroker-session"

OffsetTable = dict[tuple[str, int], int]


class MalformedCheckpoint(Exception):
    """A checkpoint's text is not what its format says: names the file, what is wrong, and where."""


def _read_lines(files: Files, path: str) -> list[str]:
    """The entries of a versioned text file; none when it is missing or empty."""
    data = files.read_file(path)
    if not data:
        return []
    lines = data.decode("utf-8", "replace").splitlines()
    if lines[0].strip() != "0":
        raise MalformedCheckpoint(f"{path}: unknown version {lines[0]!r} in line 1 (known: 0)")
    entries = [line for line in lines[2:] if line.strip()]
    if len(lines) < 2 or not lines[1].strip().isdigit() or int(lines[1]) != len(entries):
        count = lines[1] if len(lines) > 1 else ""
        raise MalformedCheckpoint(f"{path}: line 2 promises {count!r} entries, {len(entries)} follow")
    return entries


def _table_text(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return ("\n".join(["0", str(len(lines)), *lines]) + "\n").encode()


def read_offsets(files: Files, path: str) -> OffsetTable:
    """Read an offset checkpoint. Raises MalformedCheckpoint."""
    table: OffsetTable = {}
    for number, line in enumerate(_read_lines(files, path), 3):
        try:
            topic, partition, offset = line.split()
            table[topic, int(partition)] = int(offset)
        except ValueError:
            raise MalformedCheckpoint(f"{path}: line {number} is not 'topic partition offset': {line!r}") from None
    return table


def write_offsets(files: Files, path: str, table: Mapping[tuple[str, int], int]) -> None:
    """Replace an offset checkpoint, durably."""
    entries = (f"{topic} {partition} {offset}" for (topic, partition), offset in table.items())
    files.replace_file(path, _table_text(entries), sync=True)


def read_leader_epochs(files: Files, path: str) -> list[tuple[int, int]]:
    """Read (epoch, start offset) pairs. Raises MalformedCheckpoint."""
    pairs = []
    for number, line in enumerate(_read_lines(files, path), 3):
        try:
            epoch, start = line.split()
            pairs.append((int(epoch), int(start)))
        except ValueError:
            raise MalformedCheckpoint(f"{path}: line {number} is not 'epoch offset': {line!r}") from None
    if any(later[0] <= former[0] or later[1] <= former[1] for former, later in pairwise(pairs)):
        raise MalformedCheckpoint(f"{path}: its entries do not ascend")
    return pairs


def leader_epochs_text(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Content of a leader-epoch-checkpoint."""
    return _table_text(f"{epoch} {start}" for epoch, start in pairs)


def read_topic_id(files: Files, path: str) -> bytes:
    """Topic id of a partition.metadata; ZERO_UUID when the file is missing or empty. Raises MalformedCheckpoint."""
    data = files.read_file(path)
    if not data:
        return ZERO_UUID
    fields = dict(line.partition(":")[::2] for line in data.decode("utf-8", "replace").splitlines() if line.strip())
    try:
        topic_id = uuid_from_text(fields["topic_id"].strip())
    except (KeyError, ValueError):
        raise MalformedCheckpoint(f"{path}: no valid topic_id in {data[:80]!r}") from None
    if fields.get("version", "").strip() != "0" or topic_id == ZERO_UUID:
        raise MalformedCheckpoint(
            f"{path}: version 0 and a topic id that is not zero are expected, found {data[:80]!r}"
        )
    return topic_id


def topic_id_text(topic_id: bytes) -> bytes:
    """Content of a partition.metadata (no newline at its end, as Kafka writes it)."""
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def read_properties(files: Files, path: str) -> dict[str, str] | None:
    """Read meta.properties (the simple part of Java's format that Kafka writes); None when there is no file."""
    data = files.read_file(path)
    if data is None:
        return None
    properties = {}
    for line in data.decode("utf-8", "replace").splitlines():
        text = line.strip()
        if text and text[0] not in "#!":
            name, _, value = text.partition("=")
            properties[name.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    return properties


def write_properties(files: Files, path: str, properties: Mapping[str, str]) -> None:
    """Replace meta.properties, durably."""
    lines = ["#", time.strftime("#%a %b %d %H:%M:%S UTC %Y", time.gmtime())]
    lines += [f"{name}={value}" for name, value in properties.items()]
    files.replace_file(path, ("\n".join(lines) + "\n").encode(), sync=True)

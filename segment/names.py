"""Names of folders and files in a log directory.

orders-3/00000000000000368769.log        <topic>-<partition>/<20-digit base offset><suffix>
orders-3.<32 hex>-delete/                 waiting to be removed
orders-3.<32 hex>-future/                 a copy moving in from another log directory
orders-3.<32 hex>-stray/                  set aside by a migration
"""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_MAX_FOLDER_NAME = 255
_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_MARKED_FOLDER = re.compile(r"(?P<name>.*)\.[0-9a-f]{32}-(?P<mark>delete|future|stray)")
_FILE = re.compile(
    r"(?P<offset>\d{20})(?P<suffix>\.(?:log|index|timeindex|txnindex|snapshot))(?P<state>\.deleted|\.cleaned|\.swap)?"
)


class FolderName(NamedTuple):
    """A partition's folder name, taken apart."""

    topic: str
    partition: int
    mark: str
    """"", "delete", "future" or "stray"."""


class FileName(NamedTuple):
    """A segment file's name, taken apart."""

    offset: int
    suffix: str
    state: str
    """"", ".deleted", ".cleaned" or ".swap"."""


def file_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def parse_file_name(name: str) -> FileName | None:
    """Take a segment file's name apart; None for any other file."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    return FileName(int(match["offset"]), match["suffix"], match["state"] or "")


def folder_name(topic: str, partition: int) -> str:
    """`orders-3`."""
    return f"{topic}-{partition}"


def marked_folder_name(topic: str, partition: int, mark: str) -> str:
    """`orders-3.<32 hex>-delete`; the topic is cut for a name of at most 255 characters, as Kafka does for deletes."""
    tail = f"-{partition}.{uuid.uuid4().hex}-{mark}"
    return topic[: _MAX_FOLDER_NAME - len(tail)] + tail


def fits_future_folder(topic: str, partition: int) -> bool:
    """Whether the topic's name is short enough for a copy's folder, where it is not cut."""
    return len(f"{topic}-{partition}.{uuid.uuid4().hex}-future") <= _MAX_FOLDER_NAME


def parse_folder_name(name: str) -> FolderName | None:
    """Take a partition folder's name apart; None for anything else."""
    mark = ""
    marked = _MARKED_FOLDER.fullmatch(name)
    if marked is not None:
        name, mark = marked["name"], marked["mark"]
    match = _FOLDER.fullmatch(name)
    if match is None:
        return None
    return FolderName(match["topic"], int(match["partition"]), mark)

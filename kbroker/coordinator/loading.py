"""Reads a partition of __consumer_offsets into groups: what a new coordinator does first. Blocking; for a thread.

Later records replace earlier ones. Offsets in transactions wait for their marker.

A record that cannot be read is told in the log with its offset and left out. (Kafka's coordinator would give up the
whole partition then, and answer that its groups have no offsets.)
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice

from kbroker.coordinator.any_group import AnyGroup, GroupMaker
from kbroker.coordinator.commit_reader import CommitReader
from kbroker.coordinator.consumer_records import StoredGroup, is_consumer_key, load_record
from kbroker.coordinator.group import Group
from kbroker.coordinator.group_life import GroupState
from kbroker.coordinator.group_offsets import CommittedOffset, GroupOffsets
from kbroker.coordinator.log_pieces import header_at, read_pieces
from kbroker.coordinator.member import Member
from kbroker.coordinator.offsets_records import (
    COMMIT_KEY_START,
    COMMIT_VALUE_START,
    UnknownRecord,
    commit_key,
    read_commit,
    read_group,
    read_key,
)
from kbroker.protocol.errors import KafkaError, MalformedMessage
from kbroker.protocol.grouping import Key
from kbroker.protocol.messages.internal_topics import GroupMetadataValue
from kbroker.protocol.records.batch import BatchHeader
from kbroker.protocol.records.control import ControlType, read_marker
from kbroker.protocol.records.errors import CorruptBatch, InvalidRecord
from kbroker.protocol.records.record import decode_batch
from kbroker.segment.log import Log

log = logging.getLogger(__name__)

RESOLVED_AT_ONCE = 4096
"""Commits; other threads run in between."""
PORTIONS_PER_FREEZE = 8
Pending = dict[Key, tuple[CommittedOffset | None, int]]


@dataclass(slots=True)
class LoadedOffsets:
    """What a partition holds, by group."""

    offsets: dict[str, GroupOffsets] = field(default_factory=dict)
    """Committed ones."""
    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    consumer_groups: dict[str, StoredGroup] = field(default_factory=dict)
    """Groups of the newer protocol."""
    pending: dict[int, dict[str, Pending]] = field(default_factory=dict)
    """producer id -> group -> offsets of a transaction that is not decided; None is a tombstone."""
    removals: dict[tuple[str, Key], int] = field(default_factory=dict)
    """(group, partition) -> offset of the tombstone that went for offsets in transactions, too."""
    records: int = 0
    plain: CommitReader = field(default_factory=CommitReader)
    """Plain commits in their usual form. Most are replaced later, so they are read last."""

    def of(self, group_id: str) -> GroupOffsets:
        """Return the offsets of a group."""
        return self.offsets.setdefault(group_id, GroupOffsets())

    def is_removed(self, group_id: str, key: Key, record_offset: int) -> bool:
        """Whether a tombstone came behind this record of a transaction."""
        return self.removals.get((group_id, key), -1) > record_offset


def load(partition_log: Log, buffer_bytes: int, is_wanted: Callable[[], bool] = lambda: True) -> LoadedOffsets:
    """Read the whole log; stops early when `is_wanted` no longer holds. Raises KafkaError when the disk fails."""
    loaded = LoadedOffsets()
    read_pieces(
        partition_log, buffer_bytes, is_wanted, lambda data, offset: _load_piece(loaded, data, offset, partition_log)
    )
    _resolve_plain(loaded, partition_log)
    return loaded


def _load_piece(loaded: LoadedOffsets, data: bytes, offset: int, partition_log: Log) -> int:
    """Take the batches from an offset on; returns the offset behind the last whole one."""
    position = 0
    while True:
        before = position
        position = loaded.plain.read(data, position, offset)
        if position > before:
            offset = max(offset, loaded.plain.next_offset)
        header = header_at(data, position, partition_log)
        if header is None:
            return offset
        if header.last_offset >= offset:
            _load_batch(loaded, data, position, header, partition_log)
            offset = header.last_offset + 1
        position += header.size


def _resolve_plain(loaded: LoadedOffsets, partition_log: Log) -> None:
    """Read the plain commits that nothing has replaced; then what is not as usual of them, one by one."""
    plain = loaded.plain
    commits = iter(plain.commits.items())
    for number in count(1):
        some = list(islice(commits, RESOLVED_AT_ONCE))
        if not some:
            break
        plain.resolve(some)
        if number % PORTIONS_PER_FREEZE == 0:
            gc.freeze()  # what is committed stays: to look at all of it again and again would take longer than reading
    for group, found in plain.places.items():
        loaded.of(group.decode()).load_all(*found)
    for raw_key, (raw_value, record_offset) in plain.odd:
        try:
            read = read_key(raw_key)
            assert not isinstance(read, str)
            _load_commit(loaded, *read, None if raw_value is None else read_commit(raw_value), record_offset)
        except MalformedMessage as error:
            log.error("%s: the group record at offset %d is left out: %s", partition_log.name, record_offset, error)
    loaded.records += plain.records
    loaded.plain = CommitReader()


def _load_commit(
    loaded: LoadedOffsets,
    group_id: str,
    topic: str,
    partition: int,
    committed: CommittedOffset | None,
    record_offset: int,
) -> None:
    """Let a commit count, or its removal (None), unless a later record is known."""
    key = topic, partition
    offsets = loaded.of(group_id)
    if committed is not None:
        if not loaded.is_removed(group_id, key, record_offset):
            offsets.load(key, committed, record_offset)
        return
    if loaded.pending:
        loaded.removals[group_id, key] = record_offset
    offsets.removal_stored(key, record_offset)


def _load_batch(loaded: LoadedOffsets, data: bytes, position: int, header: BatchHeader, partition_log: Log) -> None:
    try:
        if header.is_control:
            if header.count:
                _end_transaction(loaded, header.producer_id, read_marker(data, position, header.size)[0])
            return
        records = decode_batch(data, position, header.size)
    except (CorruptBatch, InvalidRecord, KafkaError) as error:
        log.error("%s: group records at offset %d are left out: %s", partition_log.name, header.base_offset, error)
        return
    producer_id = header.producer_id if header.is_transactional else -1
    plain = loaded.plain.commits
    is_plain = producer_id < 0
    for record in records:
        key, value = record.key, record.value
        if key is not None and value is not None and is_plain and _is_usual(key, value):
            plain[key] = (value, record.offset)
            continue
        try:
            _load_record(loaded, key, value, record.offset, producer_id)
        except MalformedMessage as error:
            log.error("%s: the group record at offset %d is left out: %s", partition_log.name, record.offset, error)
    loaded.records += len(records)


def _is_usual(key: bytes, value: bytes) -> bool:
    return key[:2] == COMMIT_KEY_START and value[:2] == COMMIT_VALUE_START


def _load_record(
    loaded: LoadedOffsets, key: bytes | None, value: bytes | None, record_offset: int, producer_id: int
) -> None:
    if key is None:
        raise MalformedMessage("it has no key")
    if is_consumer_key(key):
        load_record(loaded.consumer_groups, key, value)
        return
    try:
        read = read_key(key)
    except UnknownRecord:
        return
    if isinstance(read, str):
        if value is None:
            loaded.groups.pop(read, None)
        else:
            loaded.groups[read] = read_group(value)
        return
    group_id, topic, partition = read
    committed = None if value is None else read_commit(value)
    if producer_id >= 0:
        waiting = loaded.pending.setdefault(producer_id, {}).setdefault(group_id, {})
        waiting[topic, partition] = (committed, record_offset)
        return
    _load_commit(loaded, group_id, topic, partition, committed, record_offset)
    if committed is None:
        loaded.plain.commits.pop(commit_key(*read), None)


def _end_transaction(loaded: LoadedOffsets, producer_id: int, decision: ControlType) -> None:
    for group_id, offsets in loaded.pending.pop(producer_id, {}).items():
        if decision is not ControlType.COMMIT:
            continue
        for key, (committed, record_offset) in offsets.items():
            plain_key = commit_key(group_id, *key)
            if loaded.plain.commits.get(plain_key, (None, -1))[1] < record_offset:
                loaded.plain.commits.pop(plain_key, None)
                _load_commit(loaded, group_id, *key, committed, record_offset)


def make_groups(loaded: LoadedOffsets, maker: GroupMaker, now: int, partition: int) -> dict[str, AnyGroup]:
    """Return the groups as they go on: with members Stable, without Empty. Their timers do not run yet."""
    made: dict[str, AnyGroup] = {}
    for group_id, stored in loaded.consumer_groups.items():
        consumer_group = made[group_id] = maker.consumer(group_id, partition)
        consumer_group.restore(stored)
    committed = {group_id for group_id, offsets in loaded.offsets.items() if offsets.committed}
    waiting = list(_waiting(loaded))
    named = loaded.groups.keys() | committed | {group_id for _, group_id, *_ in waiting}
    for group_id in named - made.keys():
        group = made[group_id] = maker.classic(group_id, now, partition)
        value = loaded.groups.get(group_id)
        if value is not None:
            restore(group, value)
    for group_id in committed:
        made[group_id].offsets = loaded.offsets[group_id]
    for producer_id, group_id, key, offset, record_offset in waiting:
        made[group_id].offsets.add_transactional(producer_id, key, offset, record_offset)
    return made


def _waiting(loaded: LoadedOffsets) -> Iterator[tuple[int, str, Key, CommittedOffset, int]]:
    """Yield the offsets that wait for their marker: producer id, group, partition, offset, offset of its record."""
    for producer_id, groups in loaded.pending.items():
        for group_id, offsets in groups.items():
            for key, (maybe, record_offset) in offsets.items():
                if maybe is not None and not loaded.is_removed(group_id, key, record_offset):
                    yield producer_id, group_id, key, maybe, record_offset


def restore(group: Group, value: GroupMetadataValue) -> None:
    """Make a fresh group what its record says."""
    for stored in value.members:
        protocols = ((value.protocol or "", bytes(stored.subscription)),)
        member = Member(
            stored.member_id,
            stored.group_instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout,
            stored.rebalance_timeout,
            protocols,
            bytes(stored.assignment),
        )
        group.insert(member, value.protocol_type)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.state_since = None if value.current_state_timestamp < 0 else value.current_state_timestamp
    if group.members:
        group.state = GroupState.STABLE
        group.protocol_name = value.protocol or ""
        if value.leader in group.members:
            group.leader = value.leader

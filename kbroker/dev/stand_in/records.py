"""Transactions, sessions and nodes as records of the stand-in's files (pure).

record         length uint32, CRC-32 of the payload uint32, payload
transaction    zxid int64, time ms int64, count int32, (kind int8, the change's fields)*
a snapshot's   1 zxid int64 | 2 session, timeout, password | 3 path, data, ACL, owner, three zxids, … | 4 records int32
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from kbroker.dev.stand_in import jute
from kbroker.dev.stand_in.jute import Malformed, Reader
from kbroker.dev.stand_in.operations import (
    Acl,
    AclSet,
    Change,
    Created,
    DataSet,
    Deleted,
    SessionClosed,
    SessionOpened,
    Transaction,
)
from kbroker.dev.stand_in.tree import Node, Session, Tree

HEADER = struct.Struct("!II")
MAX_RECORD_BYTES = 1 << 30
_NODE = struct.Struct("!qqqqqqiii")
_CREATED, _DELETED, _DATA_SET, _ACL_SET, _OPENED, _CLOSED = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05", b"\x06"
_AT, _SESSION, _NODE_RECORD, _END = b"\x01", b"\x02", b"\x03", b"\x04"


def framed(payload: bytes) -> bytes:
    """Return a record."""
    return HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def record_at(data: bytes, position: int) -> tuple[bytes, int] | None:
    """Return a record's payload and where the next one begins; None when there is no whole, intact one."""
    if position + HEADER.size > len(data):
        return None
    size, checksum = HEADER.unpack_from(data, position)
    end = position + HEADER.size + size
    if size > MAX_RECORD_BYTES or end > len(data):
        return None
    payload = data[position + HEADER.size : end]
    return (payload, end) if size and zlib.crc32(payload) == checksum else None


def is_torn(data: bytes, position: int) -> bool:
    """Whether what is broken there is what a crash leaves of the last write: nothing intact comes after it."""
    return all(record_at(data, after) is None for after in range(position + 1, len(data)))


# --- transactions ---


def encode_transaction(transaction: Transaction) -> bytes:
    """Return a transaction's payload."""
    parts = [jute.int64(transaction.zxid), jute.int64(transaction.time_ms), jute.int32(len(transaction.changes))]
    return b"".join(parts + [_encode_change(change) for change in transaction.changes])


def _encode_change(change: Change) -> bytes:
    if isinstance(change, Created):
        head = _CREATED + jute.text(change.path) + jute.buffer(change.data)
        return head + jute.acl(change.acl) + jute.int64(change.owner)
    if isinstance(change, Deleted):
        return _DELETED + jute.text(change.path)
    if isinstance(change, DataSet):
        return _DATA_SET + jute.text(change.path) + jute.buffer(change.data)
    if isinstance(change, AclSet):
        return _ACL_SET + jute.text(change.path) + jute.acl(change.acl)
    if isinstance(change, SessionOpened):
        return _OPENED + jute.int64(change.session_id) + jute.int32(change.timeout_ms) + jute.buffer(change.password)
    return _CLOSED + jute.int64(change.session_id)


def decode_transaction(payload: bytes) -> Transaction:
    """Read a transaction. Raises Malformed."""
    reader = Reader(payload)
    zxid, time_ms = reader.int64(), reader.int64()
    return Transaction(zxid, time_ms, tuple(_decode_change(reader) for _ in range(reader.int32())))


def _decode_change(reader: Reader) -> Change:
    kind = reader.take(1)
    if kind == _CREATED:
        return Created(reader.text(), reader.buffer(), reader.acl(), reader.int64())
    if kind == _DELETED:
        return Deleted(reader.text())
    if kind == _DATA_SET:
        return DataSet(reader.text(), reader.buffer())
    if kind == _ACL_SET:
        return AclSet(reader.text(), reader.acl())
    if kind == _OPENED:
        return SessionOpened(reader.int64(), reader.int32(), reader.buffer() or b"")
    if kind == _CLOSED:
        return SessionClosed(reader.int64())
    raise Malformed(f"{kind!r} is no change")


# --- snapshots ---


def encode_tree(tree: Tree) -> Iterator[bytes]:
    """Yield the payloads of a snapshot: sessions before nodes, each node after its parent."""
    yield _AT + jute.int64(tree.zxid)
    for session in tree.sessions.values():
        fields = jute.int64(session.session_id) + jute.int32(session.timeout_ms) + jute.buffer(session.password)
        yield _SESSION + fields
    for path, node in tree.nodes.items():
        stamps = node.czxid, node.mzxid, node.pzxid, node.ctime_ms, node.mtime_ms
        versions = node.version, node.cversion, node.aversion
        fields = jute.text(path) + jute.buffer(node.data) + jute.acl(node.acl)
        yield _NODE_RECORD + fields + _NODE.pack(node.owner, *stamps, *versions)
    yield _END + jute.int32(len(tree.sessions) + len(tree.nodes))


def decode_tree(payloads: Iterator[bytes]) -> Tree:
    """Build the tree of a snapshot. Raises Malformed when it is not whole."""
    tree, seen = Tree(), 0
    for payload in payloads:
        reader = Reader(payload)
        kind = reader.take(1)
        if kind == _AT:
            tree.zxid = reader.int64()
        elif kind == _SESSION:
            session = Session(reader.int64(), reader.int32(), reader.buffer() or b"")
            tree.sessions[session.session_id] = session
            seen += 1
        elif kind == _NODE_RECORD:
            path, data, acl = reader.text(), reader.buffer(), reader.acl()
            owner, *stamps = _NODE.unpack(reader.take(_NODE.size))
            tree.restore(path, _node(data, acl, owner, stamps))
            seen += 1
        elif kind == _END and seen == reader.int32():
            return tree
        else:
            break
    raise Malformed("the snapshot is not whole")


def _node(data: bytes | None, acl: tuple[Acl, ...], owner: int, stamps: list[int]) -> Node:
    node = Node(data, acl, owner, 0, 0)
    node.czxid, node.mzxid, node.pzxid, node.ctime_ms, node.mtime_ms = stamps[:5]
    node.version, node.cversion, node.aversion = stamps[5:]
    return node

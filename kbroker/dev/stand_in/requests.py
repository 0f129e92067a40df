"""ZooKeeper's requests by number, writes and multis to and from bytes (pure).

request    xid int32, type int32, the request's fields
multi      (type int32, done bool, error int32 = -1, the operation's fields)* , (-1, true, -1)
answer     (type int32, done bool, error int32, the operation's result)* , (-1, true, -1)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum

from kbroker.dev.stand_in import jute
from kbroker.dev.stand_in.jute import Malformed, Reader
from kbroker.dev.stand_in.operations import (
    Check,
    Create,
    Delete,
    Done,
    Mode,
    Operation,
    Refused,
    SetAcl,
    SetData,
)


class Kind(IntEnum):
    """The requests that are answered."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN_2 = 12
    CHECK = 13
    MULTI = 14
    CREATE_2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES_2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11


CREATES = (Kind.CREATE, Kind.CREATE_2, Kind.CREATE_CONTAINER, Kind.CREATE_TTL)
IN_MULTIS = (*CREATES, Kind.DELETE, Kind.SET_DATA, Kind.CHECK)
_MULTI_HEADER = struct.Struct("!i?i")
END_OF_MULTI = _MULTI_HEADER.pack(-1, True, -1)


def read_write(kind: int, reader: Reader) -> Operation:
    """Read the fields of a request that writes. Raises Malformed."""
    path = reader.text()
    if kind in CREATES:
        return _create(kind, path, reader)
    if kind == Kind.DELETE:
        return Delete(path, reader.int32())
    if kind == Kind.SET_DATA:
        return SetData(path, reader.buffer(), reader.int32())
    if kind == Kind.SET_ACL:
        return SetAcl(path, reader.acl(), reader.int32())
    if kind == Kind.CHECK:
        return Check(path, reader.int32())
    raise Malformed(f"{kind} is no write")


def _create(kind: int, path: str, reader: Reader) -> Create:
    data, acl, flags = reader.buffer(), reader.acl(), reader.int32()
    if kind == Kind.CREATE_TTL:
        reader.int64()
    mode = Mode(flags) if 0 <= flags < Mode.UNKNOWN else Mode.UNKNOWN
    if (kind == Kind.CREATE_CONTAINER) != (mode is Mode.CONTAINER):
        mode = Mode.CONTAINER if kind == Kind.CREATE_CONTAINER else Mode.PERSISTENT
    return Create(path, data, mode, acl)


def multi_parts(reader: Reader) -> Iterator[int]:
    """Go through a multi: yields each operation's kind, whose fields are to be read before the next."""
    while True:
        kind, is_done, _ = reader.int32(), reader.boolean(), reader.int32()
        if is_done:
            return
        yield kind


def multi_answer(kinds: Sequence[int], outcomes: Iterable[Done | Refused]) -> bytes:
    """Encode what the operations of a multi came to."""
    parts = []
    for kind, outcome in zip(kinds, outcomes, strict=True):
        if isinstance(outcome, Refused):
            parts.append(multi_error(outcome))
        else:
            shown = Kind.CREATE_2 if kind in CREATES and kind != Kind.CREATE else kind
            parts.append(_MULTI_HEADER.pack(shown, False, 0) + write_answer(kind, outcome))
    return b"".join(parts) + END_OF_MULTI


def multi_error(refused: Refused) -> bytes:
    """Encode the refusal of one operation."""
    return _MULTI_HEADER.pack(-1, False, refused.code) + jute.int32(refused.code)


def multi_result(kind: int, body: bytes) -> bytes:
    """Encode one result of a multi that reads."""
    return _MULTI_HEADER.pack(kind, False, 0) + body


def write_answer(kind: int, done: Done) -> bytes:
    """Encode what a write came to."""
    if kind == Kind.CREATE:
        return jute.text(done.path)
    path = jute.text(done.path) if kind in CREATES else b""
    return path + (jute.stat(done.stat) if done.stat is not None else b"")

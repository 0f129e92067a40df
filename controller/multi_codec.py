"""ZooKeeper's multi requests on the wire, made for thousands of operations at once (pure).

    request    (type int32, done bool, error int32 = -1, the operation's own fields)* , (-1, true, -1)
    answer     (type int32, done bool, error int32, the operation's own result)* , (-1, true, -1)

Type 14 writes all or nothing; type 22 (ZooKeeper 3.6) reads many nodes, each with its own outcome. An operation that
failed has type -1 in the answer and an int32 error code for its result. kazoo calls `serialize` and `deserialize`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kbroker.controller.znode_access import ACLS, AclEntry, acl_of
from kbroker.controller.znode_operations import (
    BadVersion,
    Check,
    Create,
    NodeExists,
    NoNode,
    NotAllowed,
    NotEmpty,
    Operation,
    Outcome,
    RolledBack,
    SetData,
    Stat,
    ZnodeError,
)

OPERATIONS_PER_MULTI = 500
READS_PER_REQUEST = 500
BYTES_PER_MULTI = 400_000
"""Well below the 1 MiB (jute.maxbuffer) at which a server hangs up on a request."""

_CREATE, _DELETE, _GET_DATA, _SET_DATA, _GET_CHILDREN, _CHECK = 1, 2, 4, 5, 8, 13
_HEADER = struct.Struct("!i?i")
_INT = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")
_END = _HEADER.pack(-1, True, -1)
_NO_LENGTH = _INT.pack(-1)
_CREATE_HEADER, _DELETE_HEADER, _SET_HEADER, _CHECK_HEADER = (
    _HEADER.pack(kind, False, -1) for kind in (_CREATE, _DELETE, _SET_DATA, _CHECK)
)
_ERRORS: dict[int, type[ZnodeError]] = {
    0: RolledBack,
    -2: RolledBack,
    -101: NoNode,
    -102: NotAllowed,
    -103: BadVersion,
    -110: NodeExists,
    -111: NotEmpty,
}


def _text(text: str) -> bytes:
    data = text.encode()
    return _INT.pack(len(data)) + data


def _buffer(data: bytes | None) -> bytes:
    return _NO_LENGTH if data is None else _INT.pack(len(data)) + data


def _acl(entries: Sequence[AclEntry]) -> bytes:
    encoded = [_INT.pack(each.permissions) + _text(each.scheme) + _text(each.id) for each in entries]
    return _INT.pack(len(entries)) + b"".join(encoded)


_ACLS: dict[tuple[AclEntry, ...], bytes] = {entries: _acl(entries) for entries in ACLS}


def encoded_size(operation: Operation, is_protected: bool = False) -> int:
    """How many bytes an operation takes in a multi, without the chroot; a few more where nodes are protected."""
    path = _HEADER.size + _INT.size + len(operation.path.encode())
    if isinstance(operation, Create):
        return path + _INT.size + len(operation.data or b"") + len(_acl_for(operation, is_protected)) + _INT.size
    if isinstance(operation, SetData):
        return path + _INT.size + len(operation.data or b"") + _INT.size
    return path + _INT.size


def multis(operations: Sequence[Operation], group: int = 1, reserved: int = 0) -> Iterator[Sequence[Operation]]:
    """Runs of operations that fit into one request each, groups kept together; `reserved` bytes are left free.

    An operation or group that is larger than a request should be is a run of its own: it may fit all the same.
    """
    groups = (operations[index : index + group] for index in range(0, len(operations), group))
    sizes = (sum(map(encoded_size, each)) for each in groups)
    for first, end in _runs(sizes, OPERATIONS_PER_MULTI // group, reserved):
        yield operations[first * group : end * group]


def reads(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """Runs of paths that fit into one request each: a path may be a hundred kilobytes long."""
    for first, end in _runs(map(_read_size, paths), READS_PER_REQUEST):
        yield paths[first:end]


def _runs(sizes: Iterable[int], most: int, reserved: int = 0) -> Iterator[tuple[int, int]]:
    """First and end of runs of so many at most that fit into one request; one that does not is alone in its own."""
    first, end, size = 0, 0, reserved
    for end, needed in enumerate(sizes):
        if end > first and (end - first >= most or size + needed > BYTES_PER_MULTI):
            yield first, end
            first, size = end, reserved
        size += needed
    if size > reserved:
        yield first, end + 1


def _read_size(path: str) -> int:
    return _HEADER.size + _INT.size + len(path.encode()) + 1


def _acl_for(operation: Create, is_protected: bool) -> bytes:
    return _ACLS[acl_of(operation.path, is_protected)]


def _encode(operation: Operation, chroot: str, is_protected: bool) -> bytes:
    path = _text(chroot + operation.path)
    if isinstance(operation, Create):
        flags = (1 if operation.ephemeral else 0) | (2 if operation.sequential else 0)
        acl = _acl_for(operation, is_protected)
        return _CREATE_HEADER + path + _buffer(operation.data) + acl + _INT.pack(flags)
    if isinstance(operation, SetData):
        return _SET_HEADER + path + _buffer(operation.data) + _INT.pack(operation.version)
    header = _CHECK_HEADER if isinstance(operation, Check) else _DELETE_HEADER
    return header + path + _INT.pack(operation.version)


class Multi:
    """All operations or none; the answer has an outcome per operation."""

    type = 14

    def __init__(self, operations: Sequence[Operation], chroot: str = "", is_protected: bool = False) -> None:
        self._operations = operations
        self._chroot = chroot
        self._is_protected = is_protected

    @property
    def size(self) -> int:
        """Bytes of the request's body."""
        chroots = len(self._operations) * len(self._chroot.encode())
        sizes = (encoded_size(operation, self._is_protected) for operation in self._operations)
        return sum(sizes) + chroots + len(_END)

    @property
    def path(self) -> str:
        """What it is about, for errors."""
        paths = [self._chroot + operation.path for operation in self._operations if not isinstance(operation, Check)]
        return f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else "".join(paths)

    def serialize(self) -> bytes:
        """The request's body."""
        chroot, is_protected = self._chroot, self._is_protected
        return b"".join([_encode(operation, chroot, is_protected) for operation in self._operations]) + _END

    def deserialize(self, data: bytes, position: int) -> list[Outcome]:
        """The answer's outcomes."""
        outcomes: list[Outcome] = []
        for operation in self._operations:
            kind, _, _ = _HEADER.unpack_from(data, position)
            position += _HEADER.size
            if kind == _CREATE:
                path, position = _read_text(data, position)
                outcomes.append(path[len(self._chroot) :])
            elif kind == _SET_DATA:
                outcomes.append(Stat._make(_STAT.unpack_from(data, position)))
                position += _STAT.size
            elif kind == -1:
                (code,) = _INT.unpack_from(data, position)
                position += _INT.size
                outcomes.append(_error(code, operation.path))
            else:
                outcomes.append(None)
        return outcomes


class ReadData:
    """Data and Stat of many nodes, None where there is no node."""

    type = 22
    _kind = _GET_DATA

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    @property
    def size(self) -> int:
        """Bytes of the request's body."""
        return sum(map(_read_size, self._paths)) + len(_END)

    @property
    def path(self) -> str:
        """What it is about, for errors."""
        return f"{self._paths[0]} and {len(self._paths) - 1} more" if len(self._paths) > 1 else "".join(self._paths)

    def serialize(self) -> bytes:
        """The request's body."""
        header = _HEADER.pack(self._kind, False, -1)
        return b"".join([header + _text(path) + b"\0" for path in self._paths]) + _END

    def deserialize(self, data: bytes, position: int) -> list[Any]:
        """The nodes, in the order asked for. Raises NotAllowed: what may not be read is not what is not there."""
        results: list[Any] = []
        for path in self._paths:
            kind, _, _ = _HEADER.unpack_from(data, position)
            position += _HEADER.size
            if kind == -1:
                (code,) = _INT.unpack_from(data, position)
                position += _INT.size
                if _ERRORS.get(code) is NotAllowed:
                    raise NotAllowed(path)
                results.append(self._missing())
            else:
                result, position = self._read(data, position)
                results.append(result)
        return results

    def _missing(self) -> Any:
        return None

    def _read(self, data: bytes, position: int) -> tuple[Any, int]:
        (length,) = _INT.unpack_from(data, position)
        position += _INT.size
        value = None if length < 0 else bytes(data[position : position + length])
        position += max(length, 0)
        return (value, Stat._make(_STAT.unpack_from(data, position))), position + _STAT.size


class ReadChildren(ReadData):
    """Names of the children of many nodes, sorted; none where there is no node."""

    _kind = _GET_CHILDREN

    def _missing(self) -> list[str]:
        return []

    def _read(self, data: bytes, position: int) -> tuple[list[str], int]:
        (count,) = _INT.unpack_from(data, position)
        position += _INT.size
        names = []
        for _ in range(count):
            name, position = _read_text(data, position)
            names.append(name)
        return sorted(names), position


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    (length,) = _INT.unpack_from(data, position)
    position += _INT.size
    return data[position : position + length].decode(), position + length


def _error(code: int, path: str) -> ZnodeError:
    kind = _ERRORS.get(code)
    return kind(path) if kind is not None else ZnodeError(f"{path}: ZooKeeper error {code}")

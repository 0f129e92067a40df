"""Writes and multis to and from bytes, against the encoders of kazoo and of our own controller."""

import pytest
from kazoo.protocol import serialization
from kazoo.security import OPEN_ACL_UNSAFE

from kbroker.controller import multi_codec, znode_operations
from kbroker.dev.stand_in import requests
from kbroker.dev.stand_in.jute import Malformed, Reader
from kbroker.dev.stand_in.operations import (
    CONTAINER_OWNER,
    Check,
    Code,
    Create,
    Delete,
    Done,
    Mode,
    Refused,
    SetAcl,
    SetData,
    Stat,
)
from kbroker.dev.stand_in.requests import Kind

STAT = Stat(*range(11))


def read(kind: int, data: bytes) -> object:
    reader = Reader(bytes(data))
    found = requests.read_write(kind, reader)
    assert reader.is_at_end
    return found


def test_the_writes_of_a_client_are_read() -> None:
    for flags in range(4):
        for request in (serialization.Create, serialization.Create2):
            encoded = request("/a", b"x", OPEN_ACL_UNSAFE, flags).serialize()
            assert read(request.type, encoded) == Create("/a", b"x", Mode(flags))
    assert read(Kind.DELETE, serialization.Delete("/a", 3).serialize()) == Delete("/a", 3)
    assert read(Kind.SET_DATA, serialization.SetData("/a", None, 3).serialize()) == SetData("/a", None, 3)
    assert read(Kind.CHECK, serialization.CheckVersion("/a", 3).serialize()) == Check("/a", 3)
    acl = serialization.SetACL("/a", OPEN_ACL_UNSAFE, 3).serialize()
    assert read(Kind.SET_ACL, acl) == SetAcl("/a", Create("/a").acl, 3)
    with pytest.raises(Malformed):
        read(Kind.PING, acl)


def test_containers_are_made_by_the_request_for_containers_only() -> None:
    encoded = serialization.Create2("/a", None, OPEN_ACL_UNSAFE, 4).serialize()
    assert read(Kind.CREATE_CONTAINER, encoded) == Create("/a", mode=Mode.CONTAINER)
    assert read(Kind.CREATE_2, encoded) == Create("/a")
    with_ttl = serialization.Create2("/a", None, OPEN_ACL_UNSAFE, 5).serialize() + bytes(8)
    assert read(Kind.CREATE_TTL, with_ttl) == Create("/a", mode=Mode.PERSISTENT_WITH_TTL)
    assert CONTAINER_OWNER == -0x8000000000000000


def test_an_unknown_mode_is_told_as_unknown() -> None:
    for flags in (-1, 7, 1 << 20):
        encoded = serialization.Create("/a", None, OPEN_ACL_UNSAFE, flags).serialize()
        assert read(Kind.CREATE, encoded) == Create("/a", mode=Mode.UNKNOWN)


def test_the_controllers_multis_are_read_and_their_answers_understood() -> None:
    operations: list[znode_operations.Operation] = [
        znode_operations.Create("/a", b"x", ephemeral=True, sequential=True),
        znode_operations.SetData("/b", None, 4),
        znode_operations.Delete("/c"),
        znode_operations.Check("/d", 5),
    ]
    request = multi_codec.Multi(operations)
    reader, kinds, found = Reader(request.serialize()), [], []
    for kind in requests.multi_parts(reader):
        kinds.append(kind)
        found.append(requests.read_write(kind, reader))
    assert reader.is_at_end
    assert found == [
        Create("/a", b"x", Mode.EPHEMERAL_SEQUENTIAL),
        SetData("/b", None, 4),
        Delete("/c"),
        Check("/d", 5),
    ]
    done = [Done("/a0000000007", STAT), Done("/b", STAT), Done("/c", None), Done("/d", None)]
    answer = requests.multi_answer(kinds, done)
    assert request.deserialize(answer, 0) == ["/a0000000007", znode_operations.Stat(*STAT), None, None]
    refused = [Refused(Code.OK), Refused(Code.BAD_VERSION), *[Refused(Code.RUNTIME_INCONSISTENCY)] * 2]
    outcomes = request.deserialize(requests.multi_answer(kinds, refused), 0)
    names = [type(outcome).__name__ for outcome in outcomes]
    assert names == ["RolledBack", "BadVersion", "RolledBack", "RolledBack"]

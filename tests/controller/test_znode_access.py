"""With which ACL a node is made."""

import pytest
from kazoo.protocol import serialization
from kazoo.security import ACL, Id

from kbroker.controller.multi_codec import Multi, encoded_size
from kbroker.controller.znode_access import OPEN, READABLE, SECRET, AclEntry, ZooKeeperAccess, acl_of
from kbroker.controller.znode_operations import Create

PATHS = {
    "/consumers": OPEN,
    "/consumers/group": READABLE,
    "/brokers/ids/1": READABLE,
    "/config/topics/users": READABLE,
    "/kafka-acl/Topic/t": READABLE,
    "/config/users": SECRET,
    "/config/users/alice": SECRET,
    "/config/brokers/1": SECRET,
    "/delegation_token": READABLE,
    "/delegation_token/tokens/x": SECRET,
    "/delegation_token/token_changes/token_change_": READABLE,
}


@pytest.mark.parametrize("path", PATHS)
def test_only_what_holds_credentials_is_hidden(path: str) -> None:
    assert acl_of(path, is_protected=True) == PATHS[path]
    assert acl_of(path, is_protected=False) == OPEN


@pytest.mark.parametrize("path", PATHS)
def test_a_multi_makes_nodes_with_the_same_acls(path: str) -> None:
    ours = Multi([Create(path, b"1")], "/chroot", is_protected=True)
    acl = [ACL(entry.permissions, Id(entry.scheme, entry.id)) for entry in PATHS[path]]
    theirs = serialization.Transaction([serialization.Create("/chroot" + path, b"1", acl, 0)])
    written = bytes(theirs.serialize()).replace(b"auth\xff\xff\xff\xff", b"auth\0\0\0\0")  # kazoo makes "" null
    assert ours.serialize() == written
    assert ours.size == len(ours.serialize())
    assert encoded_size(Create(path, b"1"), is_protected=True) + len("/chroot") == ours.size - len(
        Multi([]).serialize()
    )


def test_the_maker_may_do_everything_and_nobody_else_writes() -> None:
    assert AclEntry(31, "auth", "") in READABLE
    assert AclEntry(1, "world", "anyone") in READABLE
    assert [each.scheme for each in SECRET] == ["auth"]


def test_passwords_are_not_shown() -> None:
    assert "hunter2" not in repr(ZooKeeperAccess(sasl=("kafka", "hunter2"), digest="kafka:hunter2"))

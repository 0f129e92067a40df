"""How ZooKeeper is spoken to, and who may do what to the nodes that are made (pure).

    zookeeper.set.acl=false    world:anyone:cdrwa                          everybody may do everything
    zookeeper.set.acl=true     auth::cdrwa (whoever made it)               /config/users, /config/brokers, the tokens
                               auth::cdrwa, world:anyone:r                 all others
                               world:anyone:cdrwa                          /consumers: clients of old write below it

The server puts the names under which the session has logged in for "auth". Nodes that exist keep what they have.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import NamedTuple

READ, ALL = 1, 31
SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
"""Beginnings of paths that hold credentials."""
FOR_ALL = "/consumers"


class AclEntry(NamedTuple):
    """Permissions of one identity."""

    permissions: int
    scheme: str
    id: str


_CREATOR = AclEntry(ALL, "auth", "")
OPEN = (AclEntry(ALL, "world", "anyone"),)
READABLE = (_CREATOR, AclEntry(READ, "world", "anyone"))
SECRET = (_CREATOR,)
ACLS = (OPEN, READABLE, SECRET)


def acl_of(path: str, is_protected: bool) -> tuple[AclEntry, ...]:
    """Return the ACL with which a node is made; the path is without the chroot."""
    if not is_protected or path == FOR_ALL:
        return OPEN
    return SECRET if path.startswith(SENSITIVE) else READABLE


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """What a session shows of itself to ZooKeeper, and whether its nodes are protected."""

    tls: ssl.SSLContext | None = None
    sasl: tuple[str, str] | None = field(default=None, repr=False)
    """User and password, for DIGEST-MD5."""
    digest: str | None = field(default=None, repr=False)
    """`user:password`, for the scheme digest."""
    is_protected: bool = False
    """zookeeper.set.acl"""

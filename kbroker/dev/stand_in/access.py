"""Who may do what to a node: ZooKeeper's ACLs of the schemes world, auth and digest (pure)."""

from __future__ import annotations

import binascii
from collections.abc import Collection, Iterable

from kbroker.dev.stand_in.operations import Acl, Code, Identity, Refused

DIGEST = "digest"


def check(acl: Iterable[Acl], permission: int, identities: Collection[Identity]) -> None:
    """Raise Refused (NO_AUTH) when none of the identities, nor anyone, has one of the permissions."""
    for entry in acl:
        if entry.permissions & permission and (
            (entry.scheme, entry.id) == ("world", "anyone") or Identity(entry.scheme, entry.id) in identities
        ):
            return
    raise Refused(Code.NO_AUTH)


def resolved(acl: Iterable[Acl], identities: Collection[Identity], path: str) -> tuple[Acl, ...]:
    """Return what is kept of a wanted ACL: without duplicates, "auth" replaced by who the client is.

    Raises Refused (INVALID_ACL).
    """
    kept: list[Acl] = []
    for entry in dict.fromkeys(acl):
        if (entry.scheme, entry.id) == ("world", "anyone"):
            kept.append(entry)
        elif entry.scheme == "auth" and identities:
            kept += [Acl(entry.permissions, *identity) for identity in identities]
        elif entry.scheme == DIGEST and entry.id.rstrip(":").count(":") == 1:
            kept.append(entry)
        else:
            raise Refused(Code.INVALID_ACL, path)
    if not kept:
        raise Refused(Code.INVALID_ACL, path)
    return tuple(kept)


def without_secrets(acl: Iterable[Acl]) -> tuple[Acl, ...]:
    """Return what those see who may read the node, but not administer it."""
    return tuple(
        Acl(entry.permissions, DIGEST, f"{entry.id.partition(':')[0]}:x") if entry.scheme == DIGEST else entry
        for entry in acl
    )


def authenticated(scheme: str, credentials: bytes) -> Identity:
    """Return who shows these credentials (digest: `user:password`). Raises Refused (AUTH_FAILED) for other schemes."""
    if scheme != DIGEST:
        raise Refused(Code.AUTH_FAILED)
    import hashlib  # loads OpenSSL: only for those who need it

    user = credentials.partition(b":")[0].decode(errors="replace")
    digest = hashlib.sha1(credentials, usedforsecurity=False).digest()
    return Identity(DIGEST, f"{user}:{binascii.b2a_base64(digest, newline=False).decode()}")

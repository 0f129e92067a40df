"""One member of a classic group: what it told us when it joined, what it waits for, when it expires (pure)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

Protocols = tuple[tuple[str, bytes], ...]
"""The assignors (or whatever the protocol type means) a member can use, most wanted first, with its metadata."""

NEVER = 1 << 62
"""A deadline that does not come."""


@dataclass(slots=True, eq=False)
class Member:
    """A member in its group. `join` and `sync` are the requests that wait for the others; None when none does."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join: object | None = None
    sync: object | None = None
    deadline: int = NEVER
    """When the member is taken for dead unless it is heard of."""
    is_new: bool = False
    """It has not been part of a generation yet: it cannot send heartbeats and gets a fixed, long time."""

    @property
    def is_static(self) -> bool:
        """Whether the member keeps its place over restarts (KIP-345)."""
        return self.group_instance_id is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return what the member said for this protocol; empty when it does not have it."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: Collection[str]) -> str:
        """Return the first of the member's protocols among the candidates; there is one."""
        return next(name for name, _ in self.protocols if name in candidates)

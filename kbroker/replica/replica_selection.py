"""Which replica a consumer should read from (KIP-392): what `replica.selector.class` names. Pure."""

from __future__ import annotations

from typing import Protocol

from kbroker.cluster.metadata_cache import MetadataCache
from kbroker.config.checks import RACK_AWARE_SELECTOR
from kbroker.replica.hosted import HostedPartition


class ReplicaSelector(Protocol):
    """Picks the replica for a consumer."""

    def __call__(self, hosted: HostedPartition, rack: str, listener: str, fetch_offset: int) -> int | None:
        """Return a broker id, or None to serve the consumer here, where the leader is."""


class RackAwareSelector:
    """The consumer's rack if a replica there is in sync and has the offset; of several the one that has most."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def __call__(self, hosted: HostedPartition, rack: str, listener: str, fetch_offset: int) -> int | None:
        """Return an in-sync follower of the rack that has the offset and the listener; None: the leader."""
        if not rack:
            return None
        brokers = self._metadata.brokers
        state = hosted.state
        leader = brokers.get(state.broker_id)
        if leader is not None and leader.rack == rack:
            return None
        candidates = []
        for broker_id, remote in state.remotes.items():
            broker = brokers.get(broker_id)
            if broker is None or broker.rack != rack or listener not in broker.endpoints or broker_id not in state.isr:
                continue
            if remote.log_start_offset <= fetch_offset <= remote.log_end_offset:
                candidates.append((remote.log_end_offset, remote.last_caught_up_ms, broker_id))
        return max(candidates)[2] if candidates else None


def replica_selector(name: str | None, metadata: MetadataCache) -> ReplicaSelector | None:
    """Return what `replica.selector.class` asks for; None: consumers read from leaders only."""
    return RackAwareSelector(metadata) if name == RACK_AWARE_SELECTOR else None

"""All partitions this broker hosts: appends, reads, leadership, and the chores that go with them.

One event loop owns everything here. A partition's decisions are in `partition.py` (pure), its bytes in `segment`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kbroker.metadata_cache import MetadataCache
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.replication import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


class LeadershipListener(Protocol):
    """Who wants to know when this broker starts or stops leading partitions (the coordinators)."""

    def __call__(self, elected: Sequence[tuple[str, int]], resigned: Sequence[tuple[str, int]]) -> None: ...


class ReplicaManager:
    """The partitions hosted here.

        manager = ReplicaManager(config, logs, metadata, broker_id=1, broker_epoch=lambda: epoch, topic_config=f)
        await manager.start()
        ...
        await manager.shutdown()

    `topic_config(topic)` gives the LogConfig of a topic whose log is about to be created. `on_log_dir_failure()` is
    called (once per directory) after a directory went offline: the broker then writes the log dir event notification.
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        metadata: MetadataCache,
        broker_id: int,
        broker_epoch: Callable[[], int],
        topic_config: Callable[[str], LogConfig],
        on_log_dir_failure: Callable[[], None] = lambda: None,
        on_leadership_change: LeadershipListener = lambda elected, resigned: None,
        clock: Callable[[], int] = now_ms,
    ) -> None: ...

    async def start(self) -> None:
        """Start the chores: checkpoints, retention, timed flushes. Logs are loaded (`LogManager.load`) by the caller."""

    async def shutdown(self) -> None:
        """Answer everything that waits, stop the chores, flush and checkpoint. Does not close the LogManager."""

    # --- replicas -----------------------------------------------------------------------------------------------------

    def replica(self, topic: str, partition: int) -> HostedPartition | None:
        """Return the hosted partition: `.state` (Partition), `.log` (Log)."""

    def leader_replica(self, topic: str, partition: int) -> HostedPartition | ErrorCode:
        """Return the hosted partition if this broker leads it, else the error to answer (56, 6 or 3)."""

    @property
    def leader_count(self) -> int:
        """How many partitions this broker leads."""

    # --- data path ----------------------------------------------------------------------------------------------------

    def append(
        self, topic: str, partition: int, records: memoryview, acks: int, now_ms: int, request_version: int
    ) -> AppendResult | KafkaError: ...

    async def append_batch(
        self, topic: str, partition: int, records: bytearray, timeout_ms: int, origin: AppendOrigin
    ) -> AppendResult:
        """Append for a coordinator with acks=all and wait until it is replicated; raises KafkaError."""

    # --- orders of the controller (broker epoch and controller epoch are checked inside) ---------------------------------

    async def become_leader_or_follower(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Carry out a LeaderAndIsr request: create logs, become leader or follower (controller.md 8)."""

    async def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Carry out a StopReplica request: stop, and delete where asked."""

    def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Merge what the controller says about the cluster into the metadata cache."""

    # --- configuration, directories ----------------------------------------------------------------------------------------

    def apply_topic_config(self, topic: str, config: LogConfig) -> None:
        """A topic's configuration changed: apply it to its logs here at once."""

    def describe_log_dirs(self, topics: dict[str, set[int]] | None) -> list[LogDirDescription]:
        """Sizes and offset lags per log directory; all partitions when `topics` is None.

        LogDirDescription(path, error: ErrorCode, total_bytes, usable_bytes,
                          replicas: list[(topic, partition, size, offset_lag, is_future)])
        """

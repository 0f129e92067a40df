"""All logs of all log directories. (Skeleton: signatures are final, bodies follow.)"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from segment.log import Log
from segment.log_config import LogConfig


class LogDirError(Exception):
    """A log directory cannot be used (locked, of another broker or cluster, unreadable): one clear line."""


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """The broker's keys that concern all logs (names of configs.md in snake_case)."""

    num_recovery_threads_per_data_dir: int = 1
    log_retention_check_interval_ms: int = 300_000
    log_flush_scheduler_interval_ms: int = (1 << 63) - 1
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    log_initial_task_delay_ms: int = 30_000
    max_open_files: int = 0
    """Descriptors kept open for segments; 0: a fair part of the process's limit."""


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One directory as DescribeLogDirs shows it."""

    path: str
    error: str | None
    total_bytes: int
    usable_bytes: int
    logs: list[tuple[str, int, int, bool]]
    """(topic, partition, size, is_future)"""


class LogManager:
    """Owns every log of the broker."""

    def __init__(
        self,
        log_dirs: Sequence[str | Path],
        default_config: LogConfig | None = None,
        settings: LogManagerSettings | None = None,
        on_offline_dir: Callable[[str, Exception], None] | None = None,
    ) -> None:
        """Nothing is touched on disk before open()."""

    def stored_broker_id(self) -> int | None:
        """broker.id found in meta.properties (None: none yet). Raises LogDirError when directories disagree."""
        raise NotImplementedError

    def stored_cluster_id(self) -> str | None:
        """cluster.id found in meta.properties."""
        raise NotImplementedError

    def open(self, broker_id: int, cluster_id: str) -> None:
        """Create, lock and check the directories, write meta.properties. Raises LogDirError when none can be used."""
        raise NotImplementedError

    def load(self, topic_configs: Mapping[str, LogConfig] | Callable[[str], LogConfig] | None = None) -> None:
        """Open (and recover) every log, in parallel threads; blocking."""
        raise NotImplementedError

    @property
    def logs(self) -> Mapping[tuple[str, int], Log]:
        """(topic, partition) -> log, live directories only."""
        raise NotImplementedError

    def get(self, topic: str, partition: int) -> Log | None:
        """The log, if this broker has it in a live directory."""
        raise NotImplementedError

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether the log lies (or lay) in a directory that is offline."""
        raise NotImplementedError

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None, log_dir: str | None = None
    ) -> Log:
        """Return the log, created when missing in the live directory with the fewest logs. KafkaError KAFKA_STORAGE_ERROR."""
        raise NotImplementedError

    def delete(self, topic: str, partition: int) -> None:
        """Take the log away: its folder is renamed `-delete` at once and removed after file.delete.delay.ms."""
        raise NotImplementedError

    def update_config(self, topic: str, config: LogConfig) -> None:
        """apply_config on every log of the topic."""
        raise NotImplementedError

    @property
    def live_dirs(self) -> list[str]:
        """Directories in use."""
        raise NotImplementedError

    @property
    def offline_dirs(self) -> dict[str, str]:
        """Directory -> why it is offline."""
        raise NotImplementedError

    def mark_offline(self, log_dir: str, error: Exception) -> list[tuple[str, int]]:
        """Take a failing directory out of service; the partitions that went with it. Calls on_offline_dir once."""
        raise NotImplementedError

    def describe(self) -> list[LogDirDescription]:
        """For DescribeLogDirs."""
        raise NotImplementedError

    def checkpoint_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint of each directory."""
        raise NotImplementedError

    def run_due(self, now_ms: int) -> int:
        """Do all periodic work that is due (retention, flush.ms, checkpoints, delayed deletes, producer expiry); returns
        when to call again (ms). Run it in a worker thread; never concurrently with itself."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """Flush and close every log, write checkpoints and .kafka_cleanshutdown, release the locks."""
        raise NotImplementedError

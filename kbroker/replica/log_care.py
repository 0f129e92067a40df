"""What is done to a broker's logs in the background, by threads of its own: compaction, scrubbing, mending."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kbroker.config.shares import settings_of
from kbroker.replica.segment_mender import SegmentMender
from kbroker.segment.cleaner import LogCleaner, LogCleanerSettings
from kbroker.segment.scrubber import LogScrubber, LogScrubberSettings

if TYPE_CHECKING:
    from kbroker.config.broker_config import BrokerConfig
    from kbroker.replica.replica_manager import ReplicaManager


class LogCare:
    """Runs from the moment it is made until `stop`."""

    def __init__(self, replicas: ReplicaManager) -> None:
        config, logs = replicas.config, replicas.logs
        self._workers = replicas.workers
        self.mender = SegmentMender(
            replicas.broker_id,
            replicas.metadata,
            config.inter_broker_listener,
            config.request_timeout_ms,
            replicas.connections,
            replicas.workers.upkeep,
        )
        self.cleaner = LogCleaner(logs, settings_of(LogCleanerSettings, config))
        self.cleaner.start()
        self.scrubber = LogScrubber(logs, settings_of(LogScrubberSettings, config), self.mender.tell)
        self.scrubber.start()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Go on with other settings."""
        self.cleaner.reconfigure(settings_of(LogCleanerSettings, config))
        self.scrubber.reconfigure(settings_of(LogScrubberSettings, config))

    async def stop(self) -> None:
        """End what is under way."""
        loop = asyncio.get_running_loop()
        for each in (self.cleaner, self.scrubber):
            await loop.run_in_executor(self._workers.upkeep, each.stop)
        await self.mender.close()

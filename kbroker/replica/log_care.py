"""What is done to a broker's logs in the background, by threads of its own: compaction, scrubbing, mending."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kbroker.config.shares import settings_of
from kbroker.replica.segment_mender import SegmentMender
from kbroker.segment.cleaner import LogCleaner, LogCleanerSettings
from kbroker.segment.scrubber import Damage, LogScrubber, LogScrubberSettings
from kbroker.segment.wanted_scrubs import WantedScrubs

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
            replicas.workers,
        )
        self.cleaner = LogCleaner(logs, settings_of(LogCleanerSettings, config))
        self.cleaner.start()
        self.scrubber = LogScrubber(logs, settings_of(LogScrubberSettings, config), self.mender.tell)
        self.scrubber.start()
        self.wanted_scrubs = WantedScrubs(logs, self.scrubber)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Go on with other settings."""
        self.cleaner.reconfigure(settings_of(LogCleanerSettings, config))
        self.scrubber.reconfigure(settings_of(LogScrubberSettings, config))

    def state_of(self, damage: Damage) -> str:
        """Whether it is "mended" (or removed since), "mending", or stays "damaged"."""
        if damage.segment not in damage.log.segments[:-1]:
            return "mended"
        return "mending" if damage.segment in self.mender.busy_with else "damaged"

    async def stop(self) -> None:
        """End what is under way."""
        loop = asyncio.get_running_loop()
        for each in (self.cleaner, self.scrubber, self.wanted_scrubs):
            await loop.run_in_executor(self._workers.upkeep, each.stop)
        await self.mender.close()

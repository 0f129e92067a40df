"""What the metrics are read from: the parts of a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from kbroker.metrics.loop_idle import LoopIdle

if TYPE_CHECKING:
    from kbroker.cluster.latest_offsets import LatestOffsets
    from kbroker.handlers.context import Services
    from kbroker.metrics.runtime import Collections
    from kbroker.network.dispatch import Dispatcher
    from kbroker.network.server import Server
    from kbroker.network.watchdog import Watchdog


class BrokerState(IntEnum):
    """Kafka's numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(slots=True)
class Sources:
    """Read by the thread that serves metrics while the loop changes them: it copies a table before it looks into it."""

    services: Services
    server: Server
    dispatcher: Dispatcher
    watchdog: Watchdog | None
    state: Callable[[], int]
    latest_offsets: LatestOffsets | None = None
    """High watermarks of partitions that are led elsewhere, as far as known."""
    loop_idle: LoopIdle = field(default_factory=LoopIdle)
    collections: Collections | None = None
    """Garbage collections, while metrics are served."""

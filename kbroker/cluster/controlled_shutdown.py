"""A broker that is about to stop asks the controller to give its leaderships to others first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from kbroker.config.broker_config import BrokerConfig
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.replication import ControlledShutdownRequest

log = logging.getLogger(__name__)


async def hand_over(
    ask: Callable[[ControlledShutdownRequest, float], Awaitable[Any]],
    broker_id: int,
    broker_epoch: Callable[[], int],
    config: BrokerConfig,
) -> bool:
    """Ask the controller until nothing is left to be led here, as often as configured; whether that came about.

    `broker_epoch` is asked each time: the broker may have registered again meanwhile.
    """
    for attempt in range(config.controlled_shutdown_max_retries):
        if attempt:
            await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch())
        try:
            answer = await ask(request, config.controller_socket_timeout_ms / 1000)
            if answer.error_code is ErrorCode.NONE and not answer.remaining_partitions:
                return True
            left = len(answer.remaining_partitions)
            log.info("controlled shutdown: %s, %d partitions remain", answer.error_code.name, left)
        except KafkaError as error:
            log.warning("controlled shutdown failed: %s", error)
    log.warning("controlled shutdown did not succeed; stopping all the same")
    return False

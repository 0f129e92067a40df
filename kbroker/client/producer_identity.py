"""Who a producer is to the brokers: the id and epoch that its batches carry, and the asking for them.

The epoch is raised by the producer itself whenever something that was sent may be missing; a new id is asked for where
that is not enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kbroker.client.cluster import Cluster
from kbroker.client.errors import BrokerError, error_for
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.transactions import InitProducerIdRequest

log = logging.getLogger(__name__)

LARGEST_EPOCH = 32_766
ASK_FOR_MS = 5_000
"""Then the asking begins anew, with what is known of the cluster by then."""
TRANSACTION_TIMEOUT_MS = 60_000
"""Without effect: there is no transactional id."""

IdAndEpoch = tuple[int, int]
UNKNOWN: IdAndEpoch = (-1, -1)


class ProducerIdentity:
    """`current` is what a batch is stamped with that has no sequence yet."""

    def __init__(self, cluster: Cluster, backoff_s: float, longest_backoff_s: float) -> None:
        self.current: IdAndEpoch = UNKNOWN
        self.problem: Exception | None = None
        """Why there is none now."""
        self._cluster = cluster
        self._backoff = backoff_s
        self._longest_backoff = longest_backoff_s
        self._is_asking = False

    @property
    def is_known(self) -> bool:
        """Whether batches can be stamped."""
        return self.current[0] >= 0

    @property
    def is_wanted(self) -> bool:
        """Whether somebody should call `obtain`."""
        return not self.is_known and not self._is_asking

    def raise_epoch(self, seen: IdAndEpoch) -> None:
        """Start sequences anew everywhere, unless somebody has done so since `seen`."""
        if seen == self.current:
            self.current = UNKNOWN if seen[1] >= LARGEST_EPOCH else (seen[0], seen[1] + 1)

    def give_up(self, seen: IdAndEpoch) -> None:
        """Ask for a new id: the brokers do not take this one any more."""
        if seen == self.current:
            self.current = UNKNOWN

    async def obtain(self, refused: Callable[[BrokerError], None]) -> None:
        """Ask until there is an answer; `refused` hears of one that asking again would not change."""
        self._is_asking = True
        pause = self._backoff
        try:
            while True:
                try:
                    self.current = await self._ask()
                    self.problem = None
                    return
                except BrokerError as error:
                    self.problem = error
                    if not error.retriable:
                        log.error("the producer gets no id: %s", error)
                        refused(error)
                        await asyncio.sleep(self._longest_backoff)
                        return
                except (OSError, KafkaError) as error:
                    self.problem = error
                log.warning("the producer has no id yet and asks again: %s", self.problem)
                await asyncio.sleep(pause)
                pause = min(2 * pause, self._longest_backoff)
        finally:
            self._is_asking = False

    async def _ask(self) -> IdAndEpoch:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        answer = await self._cluster.ask(request, timeout_ms=ASK_FOR_MS)
        if answer.error_code is not ErrorCode.NONE:
            text = "no producer id for an idempotent producer (enable_idempotence=False does without one)"
            raise error_for(answer.error_code, text)
        return answer.producer_id, answer.producer_epoch

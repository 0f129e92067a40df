"""How many partitions a client may have made or deleted in a second (KIP-599).

Newer versions of the requests are strict: while anything is owed, each further topic is refused with
THROTTLING_QUOTA_EXCEEDED. Clients that ask in older ones do not know that: all is done, and they wait.
"""

from __future__ import annotations

from time import monotonic

from kbroker.handlers.context import RequestContext, Services
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.security.quotas import MUTATED


class Mutations:
    """What one request changes."""

    def __init__(self, services: Services, ctx: RequestContext, first_strict_version: int) -> None:
        keeper = services.quotas
        counts = keeper is not None and keeper.quotas.is_used
        self._counter = keeper.quotas.counter(MUTATED, ctx.user, ctx.client_id or "") if keeper and counts else None
        self._is_strict = ctx.api_version >= first_strict_version
        self._owed_until_ms = 0.0

    def take(self, partitions: int) -> None:
        """Count a topic's partitions before they change; raises KafkaError when it must not be."""
        counter = self._counter
        if counter is None:
            return
        now_ms = monotonic() * 1000
        delay_ms = counter.bucket.delay_ms(counter.limit, now_ms)
        if self._is_strict and (delay_ms or (counter.limit <= 0 and counter.bucket.tokens(0, now_ms) < 0)):
            self._owed_until_ms = max(self._owed_until_ms, now_ms + delay_ms)
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        counter.bucket.take(partitions, counter.limit, now_ms)
        if not self._is_strict:
            self._owed_until_ms = now_ms + counter.bucket.delay_ms(counter.limit, now_ms)

    @property
    def delay_ms(self) -> int:
        """For how long the client is to wait after the answer."""
        return max(0, round(self._owed_until_ms - monotonic() * 1000)) if self._owed_until_ms else 0

"""Who acts for a transactional producer when it may not any more; transactions without records are enough for that.

Each visit has a transactional id of its own, and asks its coordinator for what must be refused: the abort of what was
committed, the end of a transaction by whose place another has taken, one epoch for two transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kbroker.client.connection import Connection
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.transactions import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from kbroker.verify.clients import split_key
from tests.simulation.clients import REQUEST_S
from tests.simulation.promises import PromiseBroken
from tests.simulation.strangers import Visitor

COORDINATORS = "__transaction_state:0"
TIMEOUT_MS = 3000
CLIENTS_ADD = 3
"""The last version of AddPartitionsToTxn that clients send."""
KEEPS_EPOCH, HAS_EPOCHS = 4, 5
"""Versions of EndTxn: the producer keeps its epoch, and each transaction has its own."""
PAUSE_S = 0.02
Identity = tuple[int, int]


class Impostor(Visitor):
    """One visit after the other."""

    _visits = 0

    def somewhere(self) -> str:
        """Return the partition whose leader is visited."""
        return COORDINATORS

    def visit(self) -> Callable[[Connection, str], Awaitable[None]]:
        """Return what is done there."""
        return self.rng.choice((self._abort_what_is_committed, self._go_on_beside_another, self._begin_two))

    async def _abort_what_is_committed(self, connection: Connection, key: str) -> None:
        name, producer = await self._begin(connection)
        if producer is None or await self._end(connection, name, producer, True, KEEPS_EPOCH) is None:
            return
        if await self._end(connection, name, producer, False, KEEPS_EPOCH) is not None:
            raise PromiseBroken(f"{connection.address} says that {name} is aborted, and that it is committed")

    async def _go_on_beside_another(self, connection: Connection, key: str) -> None:
        name, producer = await self._begin(connection)
        if producer is None or await self._init(connection, name) is None:
            return
        if await self._add(connection, name, producer):
            raise PromiseBroken(f"{connection.address} lets {name} begin, in whose place is another")
        if await self._end(connection, name, producer, True, KEEPS_EPOCH) is not None:
            raise PromiseBroken(f"{connection.address} lets {name} commit, in whose place is another")

    async def _begin_two(self, connection: Connection, key: str) -> None:
        name, producer = await self._begin(connection)
        if producer is not None and connection.version_for(EndTxnRequest) >= HAS_EPOCHS:
            following = await self._end(connection, name, producer, True, HAS_EPOCHS)
            if following == producer:
                raise PromiseBroken(f"{connection.address} lets {name} go on in the epoch of what it has committed")

    async def _begin(self, connection: Connection) -> tuple[str, Identity | None]:
        """Begin a transaction; whose, and with which id and epoch, where that could be done."""
        self._visits += 1
        name = f"impostor-{self.number}-{self._visits}"
        producer = await self._init(connection, name)
        if producer is None or not await self._add(connection, name, producer):
            return name, None
        return name, producer

    async def _init(self, connection: Connection, name: str) -> Identity | None:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TIMEOUT_MS)
        for _ in range(5):
            answer = await connection.request(request, timeout=REQUEST_S)
            if answer.error_code is ErrorCode.NONE:
                return answer.producer_id, answer.producer_epoch
            await asyncio.sleep(PAUSE_S)
        return None

    async def _add(self, connection: Connection, name: str, producer: Identity) -> bool:
        topic, partition = split_key(self.rng.choice(self.trial.keys))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        answer = await connection.request(request, CLIENTS_ADD, timeout=REQUEST_S)
        (one,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        return bool(one.partition_error_code is ErrorCode.NONE)

    async def _end(
        self, connection: Connection, name: str, producer: Identity, is_commit: bool, version: int
    ) -> Identity | None:
        """The id and epoch that it goes on with; None where it was refused, or is not over soon."""
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=is_commit
        )
        for _ in range(5):
            answer = await connection.request(request, version, timeout=REQUEST_S)
            if answer.error_code is ErrorCode.NONE:
                return answer.producer_id, answer.producer_epoch
            if answer.error_code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return None
            await asyncio.sleep(PAUSE_S)
        return None

"""What coordinators of transactions must not do, looked at in themselves: no client could tell in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kbroker.client.connection import Connection
from kbroker.coordinator import transaction, transaction_coordinator, transaction_records
from kbroker.coordinator.marker_sender import MarkerSender
from kbroker.protocol.messages.transactions import WriteTxnMarkersRequest

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedBroker

TRANSACTIONS = "__transaction_state", 0
FEW_EPOCHS = 5
"""Of a producer id, in a world where they are soon used up."""


class Coordinators:
    """Remembers who coordinates what, and since when."""

    def __init__(self, is_broken: Callable[[str], None]) -> None:
        self._is_broken = is_broken
        self._known: dict[int, tuple[Any, Any, int]] = {}
        """Broker -> its replicas, what it coordinates, up to where its log must be committed before it begins to."""

    def look_at(self, broker: SimulatedBroker, replicas: Any) -> None:
        """Compare what a broker coordinates with what it did."""
        owned = broker.coordinates()
        before, known, must_be_committed = self._known.get(broker.broker_id, (None, None, 0))
        if owned is not known:
            if known is not None and before is replicas:
                self._has_let_go(broker, known)
            hosted = None if owned is None else replicas.hosted.get(TRANSACTIONS)
            must_be_committed = 0 if hosted is None else hosted.log.log_end_offset
            self._known[broker.broker_id] = replicas, owned, must_be_committed
        if must_be_committed and not owned.is_loading:
            self._known[broker.broker_id] = replicas, owned, 0
            high_watermark = replicas.hosted[TRANSACTIONS].state.high_watermark
            if high_watermark < must_be_committed:
                self._is_broken(
                    f"{broker.host} coordinates by what it alone may have: up to {must_be_committed}, and "
                    f"{high_watermark} is the high watermark"
                )

    def _has_let_go(self, broker: SimulatedBroker, owned: Any) -> None:
        """Who coordinates no more leaves markers to who does."""
        for ending in owned.endings.values():
            if not ending.is_over:
                self._is_broken(f"{broker.host} coordinates no more, and goes on to end {ending.transactional_id}")


def take_over(
    is_broken: Callable[[str], None], heard: Callable[[int, WriteTxnMarkersRequest], None], has_few_epochs: bool
) -> None:
    """What a coordinator writes down is what it knows, or the next one would know something else.

    `heard` is told of each request for markers, and which broker it goes to.
    """
    to_value = transaction_records.transaction_value
    ask = MarkerSender.ask

    async def heard_ask(
        sender: MarkerSender, connection: Connection, broker_id: int, request: WriteTxnMarkersRequest
    ) -> object:
        heard(broker_id, request)
        return await ask(sender, connection, broker_id, request)

    def checked(record: transaction.TransactionRecord) -> bytes:
        value = to_value(record)
        if record.client_version >= transaction.EPOCH_EACH:
            read, wanted = (
                each._replace(last_producer_epoch=transaction.NO_EPOCH)
                for each in (transaction_records.read_transaction_value(value), record)
            )
            if read != wanted:
                is_broken(f"a coordinator knows {wanted}, and the next one will read {read}")
        return value

    transaction_coordinator.transaction_value = checked  # type: ignore[attr-defined]
    MarkerSender.ask = heard_ask  # type: ignore[assignment, method-assign]
    if has_few_epochs:
        for module in (transaction, transaction_records):
            module.LAST_EPOCH, module.EXHAUSTED_EPOCH = FEW_EPOCHS, FEW_EPOCHS - 1  # type: ignore[attr-defined]

"""Which transactions compaction meets on its way through a log, and when their markers may go (pure).

Data of an aborted transaction goes at once. A marker stays while data of its transaction was met before it, then until
the delete horizon that it gets when none is left. Everything met is decided: compaction stays below the last stable
offset, and the transaction indexes tell the aborted transactions ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from kbroker.protocol.records.batch import BatchHeader
from kbroker.protocol.records.control import ControlType
from kbroker.segment.transaction_index import AbortedTransaction


class CleanedTransactions:
    """Give it each batch in the order of offsets."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, AbortedTransaction]] = []
        """Aborted transactions by first offset, a heap."""
        self._aborted: dict[int, AbortedTransaction] = {}
        """Producer id -> the aborted transaction it is in."""
        self._with_data: set[int] = set()
        """Producers in a transaction, aborted or not, of which data was met."""
        self.lost: list[int] = []
        """Offsets of ABORT markers whose data was met, of transactions that no index knows: it has taken harm."""

    @property
    def has_undecided(self) -> bool:
        """Whether the marker of a transaction is still to come."""
        return bool(self._with_data)

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Tell of aborted transactions ahead; one that is told of twice counts once."""
        for transaction in aborted:
            heappush(self._coming, (transaction.first_offset, transaction))

    def _reach(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            transaction = heappop(self._coming)[1]
            self._aborted.setdefault(transaction.producer_id, transaction)

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_data.add(header.producer_id)
        return header.producer_id in self._aborted

    def on_marker(
        self, header: BatchHeader, control_type: ControlType | None
    ) -> tuple[bool, AbortedTransaction | None]:
        """Whether the marker may go, and the entry that the new transaction index needs.

        `control_type` is None for a marker that was emptied by an earlier compaction.
        """
        self._reach(header.last_offset)
        if control_type is None:
            return True, None
        if control_type is ControlType.UNKNOWN:
            return False, None
        aborted = self._aborted.pop(header.producer_id, None) if control_type is ControlType.ABORT else None
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if had_data and control_type is ControlType.ABORT and aborted is None:
            self.lost.append(header.last_offset)
        return not had_data, aborted if had_data else None

"""Sequences per producer id; snapshots. (Skeleton.)"""

from __future__ import annotations

from typing import NamedTuple


class AbortedTransaction(NamedTuple):
    """An aborted transaction as FetchResponse lists it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerState:
    """State per producer id of one log."""

    __slots__ = ()

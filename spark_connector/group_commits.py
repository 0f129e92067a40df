"""Tells a consumer group how far a streaming query is, so that lag tools see it; from a thread of its own.

The group is for onlookers: a coordinator that refuses, is away or does not answer holds up no micro-batch. What is told
while another answer is awaited waits for it, the newest alone, for it holds all that came before. A query that has
nothing to read waits a little for the answer: Spark kills the process of a query that ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.protocol.grouping import Key
from kbroker.spark_connector.read_options import ReadOptions
from kbroker.spark_connector.tasks import new_cluster

if TYPE_CHECKING:
    from kbroker.client.plain_cluster import PlainCluster

log = logging.getLogger(__name__)
LAST_WORD_S = 5.0
"""How long a query without anything to read waits for what was told last, and its end."""


class GroupCommits:
    """Its thread begins with the first offsets."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._changed = threading.Condition()
        self._next: Mapping[Key, int] | None = None
        self._told: Mapping[Key, int] = {}
        self._is_under_way = False
        self._waited_for: Mapping[Key, int] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def tell(self, offsets: Mapping[Key, int]) -> None:
        """Have the offsets committed soon; returns at once."""
        with self._changed:
            if self._is_closed or offsets == self._told:
                return
            self._next = self._told = offsets
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="group commits", daemon=True)
                self._thread.start()

    def settle(self) -> None:
        """Wait LAST_WORD_S at most, and once, for the answer to what was told last."""
        with self._changed:
            if self._waited_for != self._told:
                self._waited_for = self._told
                self._changed.wait_for(lambda: self._next is None and not self._is_under_way, LAST_WORD_S)

    def close(self) -> None:
        """Wait LAST_WORD_S at most for what is under way."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(LAST_WORD_S)
            if self._thread.is_alive():
                log.warning("the group %s was not told the last offsets: no answer yet", self._options.commit_group)

    def _run(self) -> None:
        with new_cluster(self._options) as cluster:
            while (offsets := self._take()) is not None:
                try:
                    self._commit(cluster, offsets)
                finally:
                    with self._changed:
                        self._is_under_way = False
                        self._changed.notify_all()

    def _take(self) -> Mapping[Key, int] | None:
        """Wait for offsets; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is not None or self._is_closed)
            offsets, self._next = self._next, None
            self._is_under_way = offsets is not None
            return offsets

    def _commit(self, cluster: PlainCluster, offsets: Mapping[Key, int]) -> None:
        from kbroker.protocol.errors import KafkaError

        group = self._options.commit_group
        try:
            cluster.commit(group, offsets)
        except (KafkaError, OSError) as error:
            log.warning("offsets were not committed to the group %s: %s", group, error)
            with self._changed:
                if self._told == offsets:
                    self._told = {}  # where nothing new happens, they are worth another try

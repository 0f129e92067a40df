"""The access rules of the cluster, kept up to date from ZooKeeper: what Kafka's AclAuthorizer does.

Each broker reads all rules when it starts and follows the notifications of changes. Whoever changes rules writes them
to ZooKeeper, at any broker; that broker judges by them at once, the others a moment later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from kbroker.config.broker_config import BrokerConfig
from kbroker.config.shares import zookeeper_access
from kbroker.controller.znodes import MalformedZnode
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.security.acls import Entry, EntryFilters, Pattern
from kbroker.security.authorizer import Authorizer

log = logging.getLogger(__name__)

LINES_AT_ONCE = 50


async def open_access_rules(config: BrokerConfig, zookeeper: ZooKeeper) -> AccessRules | None:
    """Read and follow the rules, where there is an authorizer: from the broker's ZooKeeper or from one of their own."""
    if not config.authorizer_class_name:
        return None
    authorizer = Authorizer(config.super_user_names, config.allow_everyone_if_no_acl_found)
    url = config.authorizer_zookeeper_url
    if url:
        session_ms = config.authorizer_zookeeper_session_timeout_ms or config.zookeeper_session_timeout_ms
        connection_ms = config.authorizer_zookeeper_connection_timeout_ms or session_ms
        in_flight = config.authorizer_zookeeper_max_in_flight_requests
        zookeeper = ZooKeeper(url, session_ms, connection_ms, in_flight, zookeeper_access(config))
        await zookeeper.connect()
    rules = AccessRules(zookeeper, authorizer, owns_zookeeper=bool(url))
    try:
        await rules.start()
    except BaseException:
        await rules.close()
        raise
    return rules


class AccessRules:
    """The rules in ZooKeeper and their index."""

    def __init__(self, zookeeper: ZooKeeper, authorizer: Authorizer, owns_zookeeper: bool = False) -> None:
        self.authorizer = authorizer
        self._zookeeper = zookeeper
        self._owns_zookeeper = owns_zookeeper
        self._heard: set[Pattern] = set()
        """Patterns that were read again: newer than what a listing that began before has of them."""
        self._reading = asyncio.Lock()

    async def close(self) -> None:
        """End the session, if it is one of the rules' own."""
        if self._owns_zookeeper:
            await self._zookeeper.close()

    async def start(self) -> None:
        """Read all rules and follow their changes; raises MalformedZnode for rules that cannot be read."""
        await self._zookeeper.ensure_acl_paths()
        await self._zookeeper.watch_acl_changes(self._read_again)
        for pattern, entries in (await self._zookeeper.read_all_acls()).items():
            if pattern not in self._heard:
                self.authorizer.replace(pattern, entries)
        log.info("access rules about %d resource patterns hold", len(self.authorizer.patterns()))

    async def _read_again(self, pattern: Pattern) -> None:
        """Take what there is now. One after the other: what is taken is never older than what was taken before."""
        self._heard.add(pattern)
        async with self._reading:  # many rules are decoded by a thread: the next answer would overtake that
            try:
                entries, _ = await self._zookeeper.read_acls(pattern)
            except MalformedZnode as error:
                log.error("access rules about %s stay as they are: %s", pattern, error)
                return
            self.authorizer.replace(pattern, entries)

    async def add(self, pattern: Pattern, entries: Collection[Entry]) -> None:
        """Add rules about a pattern; those that are there already are fine."""
        before, after = await self._zookeeper.change_acls(pattern, lambda present: present.union(entries))
        await self._read_again(pattern)
        await _tell("added", pattern, await asyncio.to_thread(_sorted_difference, after, before))

    async def remove(self, pattern: Pattern, filters: EntryFilters) -> list[Entry]:
        """Remove the rules about a pattern that one of the filters means; returns them in order."""

        def rest(present: frozenset[Entry]) -> frozenset[Entry]:
            return frozenset(entry for entry in present if filters.first(entry) is None)

        before, after = await self._zookeeper.change_acls(pattern, rest)
        await self._read_again(pattern)
        removed = await asyncio.to_thread(_sorted_difference, before, after)
        await _tell("removed", pattern, removed)
        return removed


def _sorted_difference(these: frozenset[Entry], others: frozenset[Entry]) -> list[Entry]:
    return sorted(these - others)


async def _tell(what: str, pattern: Pattern, entries: Sequence[Entry]) -> None:
    """Log a line for each rule; others have their turns between them."""
    for number, entry in enumerate(entries, 1):
        log.info("access rule %s: %s %s", what, pattern, entry)
        if number % LINES_AT_ONCE == 0:
            await asyncio.sleep(0)

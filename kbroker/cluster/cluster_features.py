"""Which features count in the cluster, as /feature says: read at the start, and again whenever it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from kbroker.controller import znodes
from kbroker.controller.features import TRANSACTION_VERSION, Levels, incompatibility, unsupported
from kbroker.controller.znode_operations import ZooKeeperError
from kbroker.controller.znodes import BrokerRegistration, MalformedZnode
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.protocol.config_def import ConfigError

log = logging.getLogger(__name__)


class ClusterFeatures:
    """`watch` before anything is asked; what cannot be read leaves things as they were."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.levels: Levels = {}
        self.epoch = -1
        """Version of the znode, -1 when unknown: the epoch of the finalized features in ApiVersions."""
        self._zookeeper = zookeeper
        self._told: frozenset[str] = frozenset()
        self._reading: asyncio.Task[None] | None = None

    @property
    def transaction_version(self) -> int:
        """From 2 on each transaction has an epoch of its own (KIP-890)."""
        return self.levels.get(TRANSACTION_VERSION, 0)

    @property
    def unsupported(self) -> list[str]:
        """What counts and is not supported here."""
        return unsupported(self.levels)

    async def begin(self) -> None:
        """Watch; raises ConfigError where this broker cannot do what the others do together."""
        await self.watch()
        if self.unsupported:
            text = f"the cluster has {', '.join(self.unsupported)}, which this broker does not support"
            raise ConfigError(f"{text}: use the newer kbroker that it was made with")

    async def watch(self) -> None:
        """Read the levels, and again after every change from now on; also in a later session."""
        self._zookeeper.watch(znodes.FEATURE, lambda _path: self._read_soon())
        if self._read_soon not in self._zookeeper.on_session_established:
            self._zookeeper.on_session_established.append(self._read_soon)
        await self.read()

    def _read_soon(self) -> None:
        self._reading = asyncio.ensure_future(self._read_again())

    async def _read_again(self) -> None:
        try:
            await self.read()
        except (ZooKeeperError, MalformedZnode) as error:
            log.warning("the cluster's features are not read again: %s", error)

    async def read(self) -> None:
        """Read the levels now. Raises ZooKeeperError, MalformedZnode."""
        found = await self._zookeeper.read_feature(watch=True)
        levels, epoch = ({}, -1) if found is None else (znodes.decode_feature(found[0]), found[1])
        if levels != self.levels:
            log.info("the cluster's features: %s", ", ".join(f"{n}={level}" for n, level in levels.items()) or "none")
        self.levels, self.epoch = levels, epoch
        if self.unsupported:
            log.error("the cluster has %s, which this broker does not support", ", ".join(self.unsupported))

    def look_at(self, brokers: Iterable[BrokerRegistration]) -> None:
        """Tell, once, which of the brokers lack what counts."""
        lacking = frozenset(text for broker in brokers if (text := incompatibility(broker, self.levels)))
        for text in sorted(lacking - self._told):
            log.error("%s, which counts in this cluster: it cannot take part (Kafka's broker ends by itself)", text)
        self._told = lacking

"""Ways to hurt a ZooKeeper session from outside."""

from __future__ import annotations

import asyncio

from kazoo.client import KazooClient

from kbroker.controller import znodes
from kbroker.controller.zookeeper import ZooKeeper


async def expire(session: ZooKeeper) -> None:
    """End a session for its owner: somebody else takes its id and password, and closes it."""
    await asyncio.to_thread(_close_as, session.connect_string.partition("/")[0], session._kazoo.client_id)  # type: ignore[union-attr]


def _close_as(hosts: str, client_id: tuple[int, bytes]) -> None:
    thief = KazooClient(hosts=hosts, client_id=client_id)
    thief.start(timeout=10)
    thief.stop()
    thief.close()


def drop_connection(session: ZooKeeper) -> None:
    """Cut the socket; the session lives on."""
    session._kazoo._connection._socket.shutdown(2)  # type: ignore[union-attr]


async def tell_of_change(session: ZooKeeper, entity_type: str, entity: str) -> None:
    """Tell every broker that an entity's overrides changed, as tools do that write them to ZooKeeper."""
    change = znodes.encode_config_change(entity_type, entity)
    await session.create(znodes.CONFIG_CHANGE_PREFIX, change, sequential=True)

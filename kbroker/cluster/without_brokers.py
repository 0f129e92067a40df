"""What is written to ZooKeeper before the first broker runs: in a session of its own, then closed."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kbroker.config.jaas_file import zookeeper_login
from kbroker.controller.znode_access import ZooKeeperAccess
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.security.scram import MINIMUM_ITERATIONS, credential_of, encode_credential, salted_password

T = TypeVar("T")
SESSION_MS = 10_000
SALT_BYTES = 24


def in_zookeeper(
    connect: str,
    work: Callable[[ZooKeeper], Awaitable[T]],
    timeout_ms: int = SESSION_MS,
    access: ZooKeeperAccess | None = None,
) -> T:
    """Do the work there, once Kafka's top-level nodes exist. Raises ZooKeeperError; not for an event loop's thread."""

    async def run() -> T:
        store = ZooKeeper(connect, SESSION_MS, timeout_ms, access=access)
        try:
            await store.connect()
            await store.ensure_top_level_paths()
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def logged_in(connect: str, work: Callable[[ZooKeeper], Awaitable[T]]) -> T:
    """The same for whoever types a command: logged in as the JAAS file in $KAFKA_OPTS says, and what is written is
    protected then, as Kafka's tools do. Raises ConfigError for a file that does not say.
    """
    login = zookeeper_login()
    return in_zookeeper(connect, work, access=ZooKeeperAccess(sasl=login, is_protected=login is not None))


def new_credential(mechanism: str, password: str, iterations: int = MINIMUM_ITERATIONS) -> str:
    """Return what ZooKeeper keeps of a password."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(mechanism, password, salt, iterations)
    return encode_credential(credential_of(mechanism, salted, salt, iterations))

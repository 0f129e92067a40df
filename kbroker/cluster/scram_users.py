"""The SCRAM credentials that stand in ZooKeeper, /config/users/<user>, as this broker knows them now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kbroker.controller.znodes import desanitize, sanitize
from kbroker.security.exchange import Identity
from kbroker.security.scram import HASHES, KnownUser, ScramCredential, decode_credential

if TYPE_CHECKING:
    from kbroker.controller.zookeeper import ZooKeeper

log = logging.getLogger(__name__)

USERS = "users"
DEFAULT_USER = "<default>"


class ScramUsers:
    """User -> mechanism -> credential; read at start, and again for each notification."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self.credentials: dict[str, dict[str, ScramCredential]] = {}
        self.telling_of_all = asyncio.Lock()
        """Of all users one asker is told at a time: that takes megabytes."""
        self._zookeeper = zookeeper

    async def load(self) -> None:
        """Read the credentials of all users."""
        self.credentials.clear()
        for entity, config in (await self._zookeeper.read_all_configs(USERS)).items():
            self._take(entity, config)

    async def refresh(self, entity: str) -> None:
        """Read one user's anew; quotas of a user's clients (`<user>/clients/<client>`) are nothing here."""
        if "/" not in entity:
            self._take(entity, await self._zookeeper.read_config(USERS, entity))

    def _take(self, entity: str, config: Mapping[str, str]) -> None:
        if entity == DEFAULT_USER:
            return
        user = desanitize(entity)
        found = credentials_in(user, config)
        if found:
            self.credentials[user] = found
        else:
            self.credentials.pop(user, None)

    async def names(self) -> list[str]:
        """Return who has a configuration in ZooKeeper now: credentials, or limits."""
        entities = await self._zookeeper.config_entities(USERS)
        return sorted(desanitize(entity) for entity in entities if entity != DEFAULT_USER)

    async def configurations(self, users: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """Return what ZooKeeper holds now of these users, without those that cannot be; see `credentials_in`."""
        entities = {user: sanitize(user) for user in users if user}
        found = await self._zookeeper.read_configs(USERS, list(entities.values()))
        return {user: found[entity] for user, entity in entities.items()}

    async def read(self, users: Iterable[str] | None) -> dict[str, dict[str, ScramCredential]]:
        """Return what ZooKeeper holds now of users (None: of all) that have a credential."""
        configs = await self.configurations(await self.names() if users is None else users)
        found = {user: credentials_in(user, config) for user, config in configs.items()}
        return {user: credentials for user, credentials in found.items() if credentials}

    async def change(self, user: str, wanted: Mapping[str, str | None], *, without_controller: bool = False) -> None:
        """Write a user's credentials (mechanism -> text, None deletes it), and tell all brokers; this one goes by them
        at once.

        `without_controller`: also before the first broker has started. Raises KeyError when one that is to be deleted
        is not there, and ZooKeeperError.
        """

        async def change(config: dict[str, str]) -> dict[str, str]:
            for mechanism, text in wanted.items():
                if text is None:
                    del config[mechanism]
                else:
                    config[mechanism] = text
            return config

        await self._zookeeper.change_config(USERS, sanitize(user), change, needs_controller=not without_controller)
        await self.refresh(sanitize(user))

    def find(self, mechanism: str, user: str) -> KnownUser | None:
        """Return whom a login with this mechanism is checked against."""
        credential = self.credentials.get(user, {}).get(mechanism)
        return None if credential is None else KnownUser(credential, Identity(user))


def credentials_in(user: str, config: Mapping[str, str]) -> dict[str, ScramCredential]:
    """Return mechanism -> credential of a user's configuration; what cannot be read is left out with a warning."""
    found = {}
    for mechanism in HASHES:
        if mechanism in config:
            try:
                found[mechanism] = decode_credential(config[mechanism])
            except ValueError as error:
                log.warning("the %s credential of user %s is left out: %s", mechanism, user, error)
    return found

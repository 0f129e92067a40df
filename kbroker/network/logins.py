"""How clients log in on each listener: made of the configuration when the broker starts."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING

from kbroker.cluster.scram_users import ScramUsers
from kbroker.cluster.token_store import DelegationTokens, token_settings
from kbroker.config.sasl import MechanismSettings, sasl_listeners
from kbroker.network.authentication import Mechanism, SaslListener
from kbroker.network.jwks import Jwks
from kbroker.security import exchange
from kbroker.security.exchange import ServerExchange
from kbroker.security.oauthbearer import OAuthBearerServer, Validator
from kbroker.security.plain import PlainServer
from kbroker.security.scram import KnownUser, Lookup, ScramServer

if TYPE_CHECKING:
    from kbroker.config.broker_config import BrokerConfig
    from kbroker.controller.zookeeper import ZooKeeper


class Logins:
    """The listeners that clients log in on, by name."""

    def __init__(self, config: BrokerConfig, zookeeper: ZooKeeper, is_controller: Callable[[], bool]) -> None:
        """Raises ConfigError for what cannot be offered."""
        self.settings = sasl_listeners(config)
        self.users = ScramUsers(zookeeper)
        tokens = token_settings(config)
        self.tokens = None if tokens is None else DelegationTokens(zookeeper, tokens, is_controller)
        """None where there is no delegation.token.secret.key."""
        self._config = config
        self._jwks: list[Jwks] = []

    async def start(self) -> dict[str, SaslListener]:
        """Read users and tokens, and return how to log in on each listener."""
        await self.users.load()
        if self.tokens is not None:
            await self.tokens.start()
        return await self.listeners()

    async def listeners(self) -> dict[str, SaslListener]:
        """Return how to log in; reads what is needed for that, and raises ConfigError where it is not to be had."""
        return {name: await self._listener(mechanisms) for name, mechanisms in self.settings.items()}

    async def close(self) -> None:
        """Keep nothing up to date any more."""
        if self.tokens is not None:
            await self.tokens.close()
        for each in self._jwks:
            await each.close()

    async def _listener(self, mechanisms: Mapping[str, MechanismSettings]) -> SaslListener:
        offered = {
            name: Mechanism(await self._beginning(settings), settings.max_reauth_ms)
            for name, settings in mechanisms.items()
        }
        delay_s = self._config.connection_failed_authentication_delay_ms / 1000
        return SaslListener(offered, delay_s, self._config.sasl_server_max_receive_size)

    async def _beginning(self, settings: MechanismSettings) -> Callable[[], ServerExchange]:
        """Return what begins a login with the mechanism."""
        if settings.name == exchange.PLAIN:
            return partial(PlainServer, settings.passwords)
        if settings.name == exchange.OAUTHBEARER:
            return partial(OAuthBearerServer, await self._validator(settings))
        return partial(_scram_server, settings.name, partial(self._find, settings.name))

    async def _validator(self, settings: MechanismSettings) -> Validator:
        if settings.unsecured is not None:
            unsecured = settings.unsecured
            return lambda token: unsecured.validate(token, time_ns() // 1_000_000)
        assert settings.jwks is not None
        assert settings.signed is not None
        jwks = Jwks(settings.jwks)
        await jwks.start()
        self._jwks.append(jwks)
        return partial(jwks.validate, settings.signed)

    def _find(self, mechanism: str, user: str, is_token: bool) -> KnownUser | Awaitable[KnownUser | None] | None:
        if not is_token:
            return self.users.find(mechanism, user)
        return None if self.tokens is None else self.tokens.find(mechanism, user)


def _scram_server(mechanism: str, lookup: Lookup) -> ScramServer:
    return ScramServer(mechanism, lookup, secrets.token_urlsafe(24))

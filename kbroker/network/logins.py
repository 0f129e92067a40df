"""How clients log in on each listener: made of the configuration when the broker starts, or the listener is added."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
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
        self.users = ScramUsers(zookeeper)
        tokens = token_settings(config)
        self.tokens = None if tokens is None else DelegationTokens(zookeeper, tokens, is_controller)
        """None where there is no delegation.token.secret.key."""
        self._jwks: dict[str, list[Jwks]] = {}
        """By listener."""

    async def start(self) -> None:
        """Read users and tokens."""
        await self.users.load()
        if self.tokens is not None:
            await self.tokens.start()

    async def listeners(self, config: BrokerConfig, but: Collection[str] = ()) -> dict[str, SaslListener]:
        """Return how to log in on each listener `but` these; raises ConfigError for what cannot be offered.

        Reads what is needed for that; `forget` them one day.
        """
        found = {}
        for name, mechanisms in sasl_listeners(config).items():
            if name not in but:
                try:
                    found[name] = await self._listener(config, name, mechanisms)
                except BaseException:
                    await self.forget(*found, name)
                    raise
        return found

    async def forget(self, *listeners: str) -> None:
        """Keep nothing up to date for these any more."""
        for name in listeners:
            for each in self._jwks.pop(name, ()):
                await each.close()

    async def close(self) -> None:
        """Keep nothing up to date any more."""
        if self.tokens is not None:
            await self.tokens.close()
        await self.forget(*self._jwks)

    async def _listener(
        self, config: BrokerConfig, listener: str, mechanisms: Mapping[str, MechanismSettings]
    ) -> SaslListener:
        offered = {
            name: Mechanism(await self._beginning(listener, settings), settings.max_reauth_ms)
            for name, settings in mechanisms.items()
        }
        delay_s = config.connection_failed_authentication_delay_ms / 1000
        return SaslListener(offered, delay_s, config.sasl_server_max_receive_size)

    async def _beginning(self, listener: str, settings: MechanismSettings) -> Callable[[], ServerExchange]:
        """Return what begins a login with the mechanism."""
        if settings.name == exchange.PLAIN:
            return partial(PlainServer, settings.passwords)
        if settings.name == exchange.OAUTHBEARER:
            return partial(OAuthBearerServer, await self._validator(listener, settings))
        return partial(_scram_server, settings.name, partial(self._find, settings.name))

    async def _validator(self, listener: str, settings: MechanismSettings) -> Validator:
        if settings.unsecured is not None:
            unsecured = settings.unsecured
            return lambda token: unsecured.validate(token, time_ns() // 1_000_000)
        assert settings.jwks is not None
        assert settings.signed is not None
        jwks = Jwks(settings.jwks)
        await jwks.start()
        self._jwks.setdefault(listener, []).append(jwks)
        return partial(jwks.validate, settings.signed)

    def _find(self, mechanism: str, user: str, is_token: bool) -> KnownUser | Awaitable[KnownUser | None] | None:
        if not is_token:
            return self.users.find(mechanism, user)
        return None if self.tokens is None else self.tokens.find(mechanism, user)


def _scram_server(mechanism: str, lookup: Lookup) -> ScramServer:
    return ScramServer(mechanism, lookup, secrets.token_urlsafe(24))

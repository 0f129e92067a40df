"""How clients log in on each listener: made of the configuration when the broker starts."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING

from kbroker.config.sasl import MechanismSettings, sasl_listeners
from kbroker.network.authentication import Mechanism, SaslListener
from kbroker.network.jwks import Jwks
from kbroker.security import exchange
from kbroker.security.exchange import ServerExchange
from kbroker.security.oauthbearer import OAuthBearerServer, Validator
from kbroker.security.plain import PlainServer
from kbroker.security.scram import KnownUser, Lookup, ScramServer

if TYPE_CHECKING:
    from kbroker.cluster.scram_users import ScramUsers
    from kbroker.config.broker_config import BrokerConfig


class Logins:
    """The listeners that clients log in on, by name."""

    def __init__(self, config: BrokerConfig, users: ScramUsers) -> None:
        """Raises ConfigError for what cannot be offered."""
        self.settings = sasl_listeners(config)
        self._users = users
        self._config = config
        self._jwks: list[Jwks] = []

    async def listeners(self) -> dict[str, SaslListener]:
        """Return how to log in; reads what is needed for that, and raises ConfigError where it is not to be had."""
        return {name: await self._listener(mechanisms) for name, mechanisms in self.settings.items()}

    async def close(self) -> None:
        """Keep nothing up to date any more."""
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

    def _find(self, mechanism: str, user: str, is_token: bool) -> KnownUser | None:
        return None if is_token else self._users.find(mechanism, user)


def _scram_server(mechanism: str, lookup: Lookup) -> ScramServer:
    return ScramServer(mechanism, lookup, secrets.token_urlsafe(24))

"""A server's listeners, made of the broker's configuration: all of them when it starts, single ones while it runs.

prepare     what is to come has its port, its stores and its users: clients wait in its queue
take        it is served, and what is no more is closed with its connections
discard     what was prepared, and is not wanted after all, is closed
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace

from kbroker.config.broker_config import BrokerConfig
from kbroker.config.listener_changes import ListenerHost
from kbroker.config.shares import believing_listeners, open_listeners
from kbroker.network.authentication import SaslListener
from kbroker.network.limits import ServerLimits, server_limits
from kbroker.network.logins import Logins
from kbroker.network.server import Listener, Server, bound
from kbroker.network.tls_listeners import TlsListener, check_change, tls_listeners
from kbroker.protocol.config_def import ConfigError
from kbroker.security.security_protocol import SecurityProtocol

log = logging.getLogger(__name__)

OPEN = (
    "whoever reaches %s comes in without a login: set listeners to SASL_SSL, or to SSL with ssl.client.auth=required, "
    "or to 127.0.0.1 (docs/security.md)"
)
BELIEVES = (
    "whoever reaches %s is believed to be whom its token says, though nobody has signed it: set "
    "listener.name.<listener>.oauthbearer.sasl.server.callback.handler.class (docs/security.md)"
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A listener that is bound and not served yet."""

    sock: socket.socket
    tls: TlsListener | None
    sasl: SaslListener | None


class Listeners(ListenerHost):
    """Of one server, from `open` on."""

    def __init__(self) -> None:
        self.check_endpoints: Callable[[BrokerConfig], Awaitable[None]] | None = None
        """Raises ConfigError where others have the addresses that clients would be told."""
        self._server: Server | None = None
        self._logins: Logins | None = None
        self._tls: dict[str, TlsListener] = {}
        """What the check before the start has made."""
        self._prepared: dict[Listener, Prepared] = {}
        self._prepared_of: dict[str, str] = {}
        """The keys that they were made of."""

    # -- start --------------------------------------------------------------------------------------------------------

    def check_start(self, config: BrokerConfig) -> None:
        """See ListenerHost."""
        found = tls_listeners(config)
        if self._server is None:
            self._tls = found

    async def open(self, server: Server, logins: Logins, config: BrokerConfig) -> None:
        """Bind all that a configuration has, after `check_start` of it; raises OSError and ConfigError."""
        warn_of_strangers(config)
        self._server, self._logins = server, logins
        server.sasl = await logins.listeners(config)
        server.tls, self._tls = self._tls, {}
        server.bind(wanted_listeners(config))

    # -- changes ------------------------------------------------------------------------------------------------------

    def check_change(self, config: BrokerConfig) -> None:
        """See ListenerHost."""
        if self._server is not None:
            check_change(self._server.tls, config)

    async def prepare(self, config: BrokerConfig) -> None:
        """See ListenerHost."""
        if self._server is None or self._logins is None or self._server.is_stopped:
            return
        if self._prepared and config.properties == self._prepared_of:
            return
        server, before = self._server, self._prepared
        self._prepared = {}
        sockets: dict[Listener, socket.socket] = {}
        try:
            await self._forget(before)  # who may come in was asked of another configuration
            if self.check_endpoints is not None:
                await self.check_endpoints(config)
            new = [each for each in wanted_listeners(config) if each not in server.listeners]
            if not new:
                return
            tls = check_change(server.tls, config)
            sockets = {each: before.pop(each).sock for each in new if each in before}
            sockets.update(_bound([each for each in new if each not in sockets], server))
            sasl = await self._logins.listeners(config, but={each.name for each in server.listeners})
        except BaseException:
            for sock in sockets.values():
                sock.close()
            raise
        finally:
            for each in before.values():
                each.sock.close()
        self._prepared_of = config.properties
        for listener, sock in sockets.items():
            # One that only moves to another address keeps what it lets clients in with.
            self._prepared[listener] = Prepared(
                sock,
                server.tls.get(listener.name, tls.get(listener.name)),
                server.sasl.get(listener.name, sasl.get(listener.name)),
            )

    async def take(self, config: BrokerConfig) -> None:
        """See ListenerHost."""
        if self._server is None or self._logins is None or self._server.is_stopped:
            await self.discard()
            return
        server, wanted = self._server, wanted_listeners(config)
        server.change_limits(_limits(server, config))  # these are not to come after a listener's first clients
        for listener in [each for each in server.listeners if each not in wanted]:
            server.remove(listener.name)
            log.info("listener %s is closed", _address(listener))
        added = [each for each in wanted if each in self._prepared]
        for listener in added:
            self._serve(listener)
        there = {each.name for each in wanted}
        gone = (server.tls.keys() | server.sasl.keys()) - there
        server.tls = {name: each for name, each in server.tls.items() if name in there}
        server.sasl = {name: each for name, each in server.sasl.items() if name in there}
        await self._logins.forget(*gone)
        new = {each.name for each in added}
        warn_of_strangers(config, new)

    def _serve(self, listener: Listener) -> None:
        assert self._server is not None
        server, prepared = self._server, self._prepared.pop(listener)
        if prepared.tls is not None:
            server.tls = {**server.tls, listener.name: prepared.tls}
        if prepared.sasl is not None:
            server.sasl = {**server.sasl, listener.name: prepared.sasl}
        server.add(listener, prepared.sock)
        log.info("listener %s is open", _address(listener))

    async def discard(self) -> None:
        """See ListenerHost."""
        prepared, self._prepared = self._prepared, {}
        for each in prepared.values():
            each.sock.close()
        await self._forget(prepared)

    async def _forget(self, prepared: Collection[Listener]) -> None:
        if self._server is not None and self._logins is not None:
            there = {each.name for each in self._server.listeners}
            await self._logins.forget(*({each.name for each in prepared} - there))


def warn_of_strangers(config: BrokerConfig, names: Collection[str] | None = None) -> None:
    """Log which listeners (of these names) let in everybody; raises ConfigError."""
    for warning, found in ((OPEN, open_listeners(config)), (BELIEVES, believing_listeners(config))):
        exposed = [each for each in found if names is None or each.partition("://")[0] in names]
        if exposed:
            log.warning(warning, ", ".join(exposed))


def wanted_listeners(config: BrokerConfig) -> list[Listener]:
    """Return those of a configuration."""
    protocols = config.security_protocols
    return [Listener(*each, SecurityProtocol(protocols[each.name])) for each in config.parsed_listeners]


def _bound(listeners: list[Listener], server: Server) -> dict[Listener, socket.socket]:
    """Bind all of them or none; raises ConfigError."""
    found: dict[Listener, socket.socket] = {}
    for listener in listeners:
        try:
            found[listener] = bound(listener, server.limits)
        except OSError as error:
            for sock in found.values():
                sock.close()
            text = error.strerror or str(error)
            for name in [each.name for each in server.listeners if server.ports[each.name] == listener.port]:
                text = f"{text}; listener {name} has it: take that one away first, in a change of its own"
            raise ConfigError(text) from error
    return found


def _limits(server: Server, config: BrokerConfig) -> ServerLimits:
    """Return a server's limits, those of single listeners as the configuration has them."""
    new = server_limits(config)
    return replace(
        server.limits,
        listener_max_connections=new.listener_max_connections,
        listener_creation_rates=new.listener_creation_rates,
        broker_listeners=new.broker_listeners,
        privileged_listener=new.privileged_listener,
    )


def _address(listener: Listener) -> str:
    return f"{listener.name}://{listener.host}:{listener.port}"

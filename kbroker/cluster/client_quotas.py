"""The clients' limits, kept up to date from ZooKeeper, and what each has used of them at this broker.

    /config/users/<user>                     producer_byte_rate, consumer_byte_rate, request_percentage,
    /config/users/<user>/clients/<client>    controller_mutation_rate
    /config/clients/<client>
    /config/ips/<address>                    connection_creation_rate

Names are percent-encoded; <default> is whoever has no limit of their own. Each broker counts for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

from kbroker.cluster import host_addresses
from kbroker.config.broker_config import BrokerConfig
from kbroker.config.dynamic_config import DynamicConfig
from kbroker.controller.znodes import desanitize, sanitize
from kbroker.controller.zookeeper import ZooKeeper
from kbroker.security.quotas import ANY, CLIENT_KEYS, CONNECTED, IP_KEYS, ClientQuotas, Entity, parsed

log = logging.getLogger(__name__)

USERS, CLIENTS, IPS = "users", "clients", "ips"
MOST_LOOKUPS = 16
"""At a time: limits are for as many hosts as anybody likes, each look-up takes a thread."""


class Place(NamedTuple):
    """Where an entity's limits are: type and name below /config."""

    kind: str
    entity: str


def place_of(entity: Entity) -> Place:
    """Return where a client's limits are."""
    if entity.user is None:
        return Place(CLIENTS, _encoded(entity.client or ""))
    user = _encoded(entity.user)
    return Place(USERS, user if entity.client is None else f"{user}/{CLIENTS}/{_encoded(entity.client)}")


def entity_at(place: Place) -> Entity:
    """Return whose limits are at a place."""
    if place.kind == CLIENTS:
        return Entity(None, _decoded(place.entity))
    user, slash, client = place.entity.partition(f"/{CLIENTS}/")
    return Entity(_decoded(user), _decoded(client) if slash else None)


def ip_place(address: str) -> Place:
    """Return where an address' limits are."""
    return Place(IPS, _encoded(address))


def _encoded(name: str) -> str:
    return ANY if name == ANY else sanitize(name)


def _decoded(name: str) -> str:
    return ANY if name == ANY else desanitize(name)


async def addresses_of(name: str) -> list[str]:
    """Return the addresses of a host, of an address itself, as connections have them; none of an unknown host: its
    limit holds for nobody.

    Raises RuntimeError where no thread can be started.
    """
    known = _literal(name)
    if known is not None:
        return known
    try:
        return await host_addresses.look_up(name)
    except OSError:
        return []


def _literal(name: str) -> list[str] | None:
    """What needs no look-up; None of a host."""
    if name == ANY:
        return [ANY]
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    return [str(getattr(address, "ipv4_mapped", None) or address)]


class QuotaKeeper:
    """Reads the limits from ZooKeeper when it is told that they have changed."""

    def __init__(self, config: BrokerConfig, zookeeper: ZooKeeper) -> None:
        burst_s = config.controller_quota_window_num * config.controller_quota_window_size_seconds
        self.quotas = ClientQuotas(config.quota_window_num, config.quota_window_size_seconds * 1000, burst_s)
        self.ips: dict[str, float] = {}
        """Address or host, or ANY -> new connections per second, by the names they were set with."""
        self.ip_rates: dict[str, float] = {}
        """The same by addresses as connections have them."""
        self._addresses: dict[str, list[str]] = {}
        self._look_ups: dict[str, asyncio.Task[None]] = {}
        """Host -> the latest, as long as it goes on; what an earlier one finds is out of date."""
        self._may_look_up = asyncio.Semaphore(MOST_LOOKUPS)
        self._zookeeper = zookeeper
        self._refreshing: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    async def load(self, configs: DynamicConfig) -> None:
        """Read all limits, thousands perhaps, and follow their changes."""
        zookeeper = self._zookeeper
        for kind in (USERS, CLIENTS):
            self._keep(kind, await zookeeper.read_all_configs(kind))
        self._keep(USERS, await zookeeper.read_configs(USERS, await zookeeper.clients_of_users()))
        for name, config in (await zookeeper.read_all_configs(IPS)).items():
            self._keep_ip(_decoded(name), parsed(IP_KEYS, config).get(CONNECTED))
        self._apply()
        limited = self.quotas.entities()
        if limited or self.ips:
            log.info("%d users and clients have limits, and connections from %d addresses", len(limited), len(self.ips))
        for kind in (USERS, CLIENTS, IPS):
            configs.follow(kind, self._follower(kind))

    def _keep(self, kind: str, configs: Mapping[str, Mapping[str, str]]) -> None:
        for name, config in configs.items():
            self.quotas.replace(entity_at(Place(kind, name)), parsed(CLIENT_KEYS, config))

    def _follower(self, kind: str) -> Callable[[str], Awaitable[None]]:
        async def follow(entity: str) -> None:
            await self.refresh(Place(kind, entity))

        return follow

    async def refresh(self, place: Place) -> None:
        """Read an entity's limits anew; one after the other, or what was read first might be taken last."""
        async with self._refreshing.setdefault(place, asyncio.Lock()):
            self._take(place, await self._zookeeper.read_config(*place))

    def _take(self, place: Place, config: Mapping[str, str]) -> None:
        if place.kind == IPS:
            self._take_ip(_decoded(place.entity), parsed(IP_KEYS, config).get(CONNECTED))
        else:
            entity = entity_at(place)
            limits = parsed(CLIENT_KEYS, config)
            if limits != self.quotas.entities().get(entity, {}):
                log.info("limits of %s %s: %s", place.kind, place.entity, limits or "none")
            self.quotas.replace(entity, limits)

    def _take_ip(self, name: str, limit: float | None) -> None:
        """Keep to a limit; that of a host from when its addresses are known, which nothing else waits for."""
        if limit != self.ips.get(name):
            log.info("connections per second of %s: %s", name, "any" if limit is None else limit)
        self._keep_ip(name, limit)
        self._apply()

    def _keep_ip(self, name: str, limit: float | None) -> None:
        if limit is None:
            self.ips.pop(name, None)
            self._addresses.pop(name, None)
            self._look_ups.pop(name, None)
        else:
            self.ips[name] = limit
            known = _literal(name)
            self._addresses[name] = self._addresses.get(name, []) if known is None else known
            if known is None:
                self._look_ups[name] = asyncio.ensure_future(self._find(name))

    async def _find(self, name: str) -> None:
        """Look a host up, unless another look-up takes this one's place meanwhile, or the limit is removed."""
        this = asyncio.current_task()
        try:
            async with self._may_look_up:
                if self._look_ups.get(name) is not this:
                    return
                addresses = await addresses_of(name)
            if self._look_ups.get(name) is not this:
                return
            if not addresses:
                log.warning("the limit of connections per second of %s holds for nobody: no address is known", name)
            self._addresses[name] = addresses
            self._apply()
        except RuntimeError as error:
            known = ", ".join(self._addresses.get(name, ())) or "nobody"
            log.error("%s is not looked up: %s; its limit holds for %s until it is set again", name, error, known)
        finally:
            if self._look_ups.get(name) is this:
                del self._look_ups[name]

    def _apply(self) -> None:
        rates = {address: limit for name, limit in self.ips.items() for address in self._addresses[name]}
        self.ip_rates.clear()
        self.ip_rates.update(rates)

    async def change(self, place: Place, changes: Mapping[str, str | None]) -> None:
        """Set limits (None: remove them) and tell every broker; this one keeps to them at once."""

        async def change(config: dict[str, str]) -> dict[str, str]:
            for key, value in changes.items():
                if value is None:
                    config.pop(key, None)
                else:
                    config[key] = value
            return config

        await self._zookeeper.change_config(*place, change)
        await self.refresh(place)
        if place.kind != IPS:
            return
        name = _decoded(place.entity)
        with contextlib.suppress(TimeoutError):  # it may stand in line
            async with asyncio.timeout(2 * host_addresses.LONGEST_LOOKUP_S):
                while (finding := self._look_ups.get(name)) is not None:  # the next one begins when ZooKeeper tells
                    await asyncio.wait([finding])

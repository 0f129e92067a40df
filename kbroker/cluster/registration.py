"""What a broker says of itself in ZooKeeper: where clients and the other brokers reach it."""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kbroker.config.broker_config import BrokerConfig
from kbroker.controller.features import SUPPORTED
from kbroker.controller.znodes import BrokerRegistration, Endpoint
from kbroker.protocol.config_def import ConfigError

if TYPE_CHECKING:
    from kbroker.controller.zookeeper import ZooKeeper


@functools.cache
def own_name() -> str:
    """Return what others know this machine by; asked once, for who is asked may take its time."""
    return socket.getfqdn()


def endpoints_of(config: BrokerConfig, ports: Mapping[str, int]) -> tuple[Endpoint, ...]:
    """Return what clients are told; `ports`: what listeners with port 0 were given (0: one that is not open)."""
    protocols = config.security_protocols
    return tuple(
        Endpoint(each.name, each.host or own_name(), each.port or ports.get(each.name, 0), protocols[each.name])
        for each in config.parsed_advertised_listeners
    )


def registration_of(config: BrokerConfig, broker_id: int, ports: Mapping[str, int]) -> BrokerRegistration:
    """Return what stands in a broker's znode."""
    return BrokerRegistration(
        broker_id,
        endpoints_of(config, ports),
        config.broker_rack,
        timestamp_ms=int(time.time() * 1000),
        group_protocols=config.group_coordinator_rebalance_protocols,
        features={name: highest for name, (_, highest) in SUPPORTED.items()},
    )


async def check_endpoints_are_free(zookeeper: ZooKeeper, broker_id: int, endpoints: Collection[Endpoint]) -> None:
    """Another live broker with an address of ours would be unreachable: refuse as Kafka does, by ConfigError."""
    ours = {(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port}
    for other in (await zookeeper.brokers()).values():
        taken = ours & {(endpoint.host, endpoint.port) for endpoint in other.endpoints}
        if taken and other.broker_id != broker_id:
            host, port = taken.pop()
            raise ConfigError(f"advertised address {host}:{port} is also that of live broker {other.broker_id}")

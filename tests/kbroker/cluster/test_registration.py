"""What a broker says of itself in ZooKeeper."""

import socket
from typing import Any

import pytest

from kbroker.cluster.registration import check_endpoints_are_free, endpoints_of, own_name, registration_of
from kbroker.config.broker_config import resolve_broker_config
from kbroker.controller.znodes import BrokerRegistration, Endpoint
from kbroker.protocol.config_def import ConfigError

MAP = "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL"


def test_clients_are_told_the_port_that_was_given_and_a_name_for_every_address() -> None:
    config = resolve_broker_config(
        {"listeners": "PLAINTEXT://:0,CLIENTS://h:2", "listener.security.protocol.map": MAP, "broker.rack": "r"}
    )
    found = registration_of(config, 7, {"PLAINTEXT": 99})
    assert found.endpoints == (
        Endpoint("PLAINTEXT", socket.getfqdn(), 99, "PLAINTEXT"),
        Endpoint("CLIENTS", "h", 2, "SASL_SSL"),
    )
    assert (found.broker_id, found.rack) == (7, "r")


def test_the_own_name_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("socket.getfqdn", lambda: asked.append("") or "h")
    own_name.cache_clear()
    config = resolve_broker_config({"listeners": "PLAINTEXT://:1"})
    try:
        assert endpoints_of(config, {}) == endpoints_of(config, {})
    finally:
        own_name.cache_clear()
    assert len(asked) == 1


class Others:
    """ZooKeeper's brokers."""

    async def brokers(self) -> dict[int, BrokerRegistration]:
        return {each: BrokerRegistration(each, (Endpoint("PLAINTEXT", "h", each),)) for each in (1, 2)}


async def test_an_address_of_another_broker_is_refused_and_the_own_one_is_not() -> None:
    others: Any = Others()
    own = resolve_broker_config({"listeners": "PLAINTEXT://h:1"})
    await check_endpoints_are_free(others, 1, endpoints_of(own, {}))
    with pytest.raises(ConfigError, match="h:1 is also that of live broker 1"):
        await check_endpoints_are_free(others, 2, endpoints_of(own, {}))
    any_port = resolve_broker_config({"listeners": "PLAINTEXT://h:0"})
    await check_endpoints_are_free(others, 2, endpoints_of(any_port, {}))

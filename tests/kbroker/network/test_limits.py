"""The server's share of the broker's configuration."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster import host_addresses
from kbroker.config.broker_config import read_broker_config
from kbroker.network.limits import LARGE_REQUESTS, PRODUCE, addresses_of, most_elements, server_limits
from kbroker.protocol.apis import API_BY_KEY


def test_limits_are_read_from_the_brokers_keys() -> None:
    asked = {"socket.request.max.bytes": "5000000", "max.connections": "77"}
    limits = server_limits(read_broker_config({"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181", **asked}))
    assert (limits.request_max_bytes, limits.max_connections) == (5_000_000, 77)
    assert limits.small_request_max_bytes == 4 << 20


def test_a_brokers_only_listener_has_no_privilege_and_the_brokers_own_has() -> None:
    general = {"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181"}
    assert server_limits(read_broker_config(general)).privileged_listener == ""
    two = {
        "listeners": "BROKERS://127.0.0.1:1,CLIENTS://127.0.0.1:2",
        "listener.security.protocol.map": "BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "listener.name.clients.max.connections": "7",
        "listener.name.clients.max.connection.creation.rate": "5",
    }
    limits = server_limits(read_broker_config({**general, **two}))
    assert limits.privileged_listener == "BROKERS"
    assert limits.broker_listeners == frozenset({"BROKERS"})
    both = read_broker_config({**general, **two, "kbroker.brokers.on.any.listener": "true"})
    assert server_limits(both).broker_listeners is None
    assert server_limits(read_broker_config(general)).broker_listeners is None
    assert limits.listener_max_connections == {"CLIENTS": 7}
    assert limits.listener_creation_rates == {"CLIENTS": 5}


async def test_limits_of_host_names_hold_for_their_addresses() -> None:
    found = await addresses_of({"localhost": 3, "10.0.0.7": 4, "0:0:0:0:0:0:0:2": 5})
    assert found["127.0.0.1"] == 3
    assert found["10.0.0.7"] == 4
    assert found["::2"] == 5
    with pytest.raises(OSError, match=r"the host no\.such\.host\.invalid is not known"):
        await addresses_of({"no.such.host.invalid": 1})
    with pytest.raises(OSError, match=r"the host a\.\.b is not known"):
        await addresses_of({"a..b": 1})


async def test_a_host_whose_first_name_server_is_dead_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def after_a_while(*arguments: Any, **more: Any) -> Any:
        threading.Event().wait(0.3)
        return socket.getaddrinfo("127.0.0.1", *arguments[1:], **more)

    resolver = SimpleNamespace(getaddrinfo=after_a_while, SOCK_STREAM=socket.SOCK_STREAM)
    monkeypatch.setattr(host_addresses, "socket", resolver)
    monkeypatch.setattr(host_addresses, "LONGEST_LOOKUP_S", 0.01)
    assert await addresses_of({"db1": 5}) == {"127.0.0.1": 5}


def test_small_requests_are_never_larger_than_any_request() -> None:
    asked = {"socket.request.max.bytes": "1000", "kbroker.small.request.max.bytes": "2000"}
    limits = server_limits(read_broker_config({"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181", **asked}))
    assert limits.small_request_max_bytes == 1000


def test_only_what_brokers_send_may_have_millions_of_elements() -> None:
    assert {key for key in API_BY_KEY if most_elements(key) > 100_000} == LARGE_REQUESTS - {PRODUCE}


def test_socket_buffers_are_left_to_the_system_unless_they_are_asked_for() -> None:
    general = {"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181"}
    assert server_limits(read_broker_config(general)).send_buffer_bytes == -1
    asked = read_broker_config({**general, "socket.send.buffer.bytes": "102400"})
    assert server_limits(asked).send_buffer_bytes == 102_400

"""The server's share of the broker's configuration."""

from __future__ import annotations

from kbroker.config.broker_config import read_broker_config
from kbroker.network.limits import LARGE_REQUESTS, PRODUCE, most_elements, server_limits
from kbroker.protocol.apis import API_BY_KEY


def test_limits_are_read_from_the_brokers_keys() -> None:
    asked = {"socket.request.max.bytes": "5000000", "max.connections": "77"}
    limits = server_limits(read_broker_config({"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181", **asked}))
    assert (limits.request_max_bytes, limits.max_connections) == (5_000_000, 77)
    assert limits.small_request_max_bytes == 4 << 20


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

"""Picking ports."""

import socket

import pytest

from kbroker import free_ports as free_ports_module
from kbroker.free_ports import free_ports, is_port_free


def test_ports_are_distinct_free_and_below_the_ephemeral_range() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_port_free(port) for port in ports)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        ephemeral = probe.getsockname()[1]
    assert max(ports) < free_ports_module._ephemeral_start() <= ephemeral


def test_a_port_that_is_listened_on_is_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        assert not is_port_free(server.getsockname()[1])


def test_when_nothing_is_free_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_ports_module, "is_port_free", lambda port, host: False)
    with pytest.raises(OSError, match="found no 2 free ports"):
        free_ports(2)

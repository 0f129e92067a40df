"""Picking ports."""

import socket

import pytest

from kbroker.dev import free_ports as free_ports_module
from kbroker.dev.free_ports import free_ports, is_port_free


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


def test_a_port_is_not_given_twice_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("KBROKER_PORT_RANGE", f"{port}-{port + 100}")
    assert port not in free_ports(20)


def test_a_range_can_be_agreed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBROKER_PORT_RANGE", "20000-20200")
    assert all(20_000 <= port <= 20_200 for port in free_ports(10))


@pytest.mark.parametrize("text", ["", "7", "9-8", "0-5", "5-70000", "a-b"])
def test_a_range_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBROKER_PORT_RANGE", text)
    with pytest.raises(OSError, match=r"KBROKER_PORT_RANGE=.* is no range of ports"):
        free_ports(1)


def test_when_nothing_is_free_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_ports_module, "is_port_free", lambda port, host: False)
    with pytest.raises(OSError, match="found no 2 free ports"):
        free_ports(2)

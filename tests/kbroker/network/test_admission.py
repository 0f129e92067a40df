"""Who may connect: all together, by listener, by address, by second."""

from math import inf
from typing import Any

import pytest

from kbroker.network.admission import Admission
from kbroker.network.limits import ServerLimits
from kbroker.security.quotas import ANY


def admission(ip_rates: dict[str, float] | None = None, **limits: Any) -> Admission:
    return Admission(ServerLimits(**limits), ip_rates)


def fill(doors: Admission, count: int, listener: str = "CLIENTS", host: str = "h", now: float = 10.0) -> None:
    for _ in range(count):
        assert doors.accepted(listener, host, now) == 0
        doors.enter(listener, host)


def test_all_connections_together_are_limited_until_somebody_leaves() -> None:
    doors = admission(max_connections=2)
    fill(doors, 2)
    assert doors.pause_s("CLIENTS", 0) == inf
    doors.leave("CLIENTS", "h")
    assert doors.pause_s("CLIENTS", 0) == 0


def test_a_broker_with_one_listener_exempts_nobody() -> None:
    doors = admission(max_connections=1, privileged_listener="")
    fill(doors, 1, "PLAINTEXT")
    assert doors.pause_s("PLAINTEXT", 0) == inf


def test_brokers_come_in_by_their_own_listener_and_a_client_goes_for_them() -> None:
    doors = admission(max_connections=1, privileged_listener="BROKERS")
    assert doors.enter("CLIENTS", "h")
    assert doors.pause_s("BROKERS", 0) == 0
    assert not doors.enter("BROKERS", "h")


def test_a_listener_may_have_a_limit_of_its_own() -> None:
    doors = admission(listener_max_connections={"CLIENTS": 1})
    fill(doors, 1)
    assert doors.pause_s("CLIENTS", 0) == inf
    assert doors.pause_s("OTHERS", 0) == 0


def test_the_rate_is_that_of_kafkas_windows_and_brokers_do_not_count() -> None:
    doors = admission(max_creation_rate=2, privileged_listener="BROKERS")
    for _ in range(50):  # nobody was there: nothing is counted
        assert doors.pause_s("CLIENTS", 10.0) == 0
    fill(doors, 50, "BROKERS")
    assert doors.pause_s("CLIENTS", 10.0) == 0
    fill(doors, 20)  # as many as two a second are in ten seconds
    assert doors.pause_s("CLIENTS", 10.0) == 0
    fill(doors, 1)
    assert doors.pause_s("CLIENTS", 10.0) == 0.5
    assert doors.pause_s("BROKERS", 10.0) == 0
    fill(doors, 9)
    assert doors.pause_s("CLIENTS", 10.0) == 1  # never longer than a window: it is asked again then
    assert doors.pause_s("CLIENTS", 25.0) == 0


def test_a_listener_may_have_a_rate_of_its_own() -> None:
    doors = admission(listener_creation_rates={"BROKERS": 1}, privileged_listener="BROKERS", rate_samples=2)
    assert doors.pause_s("BROKERS", 10.0) == 0
    fill(doors, 2, "BROKERS")
    assert doors.pause_s("BROKERS", 10.0) == 1
    assert doors.pause_s("CLIENTS", 10.0) == 0


def test_an_address_that_connects_too_often_is_held_and_does_not_count_for_others() -> None:
    rates = {"h": 1.0, ANY: 2.0}
    doors = admission(rates, rate_samples=2, max_creation_rate=100)
    assert doors.accepted("CLIENTS", "h", 10.0) == 0
    for _ in range(500):
        assert doors.accepted("CLIENTS", "h", 10.0) == 1
    assert doors.pause_s("CLIENTS", 10.0) == 0
    assert [doors.accepted("CLIENTS", "other", 10.0) for _ in range(3)] == [0, 0, 0.5]
    assert doors.accepted("CLIENTS", "third", 10.0) == 0
    assert doors.accepted("CLIENTS", "h", 13.0) == 0
    rates.pop("h")  # the limit is gone: that of all the others holds
    assert doors.accepted("CLIENTS", "h", 13.0) == 0
    rates.clear()
    assert all(doors.accepted("CLIENTS", "h", 13.0) == 0 for _ in range(50))


def test_addresses_that_were_not_there_for_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.network.admission.MOST_ADDRESSES", 3)
    doors = admission({ANY: 1.0}, rate_samples=2)
    for host in "abca":
        doors.accepted("CLIENTS", host, 10.0)
    doors.accepted("CLIENTS", "d", 10.0)
    assert doors.accepted("CLIENTS", "a", 10.0) > 0
    assert doors.accepted("CLIENTS", "b", 10.0) == 0


def test_addresses_are_limited_each_and_some_by_exception() -> None:
    doors = admission(max_connections_per_ip=1, per_ip_overrides={"10.0.0.1": 2})
    assert doors.refusal("h") is None
    fill(doors, 1)
    assert doors.refusal("h") == "it has 1, as many as allowed"
    fill(doors, 1, host="10.0.0.1")
    assert doors.refusal("10.0.0.1") is None
    fill(doors, 1, host="10.0.0.1")
    assert doors.refusal("10.0.0.1") == "it has 2, as many as allowed"
    doors.leave("CLIENTS", "h")
    assert doors.refusal("h") is None

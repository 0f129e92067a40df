"""Who may connect: all together, by listener, by address, by second."""

from math import inf
from typing import Any

from kbroker.network.admission import Admission
from kbroker.network.limits import ServerLimits


def admission(**limits: Any) -> Admission:
    return Admission(ServerLimits(**limits))


def fill(doors: Admission, count: int, listener: str = "CLIENTS", host: str = "h") -> None:
    for _ in range(count):
        doors.accepted(listener)
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


def test_the_rate_counts_what_was_accepted_in_a_second_but_not_brokers() -> None:
    doors = admission(max_creation_rate=2, privileged_listener="BROKERS")
    assert doors.pause_s("CLIENTS", 10.0) == 0
    for _ in range(5):  # nobody was there: nothing is counted
        assert doors.pause_s("CLIENTS", 10.1) == 0
    fill(doors, 5, "BROKERS")
    assert doors.pause_s("CLIENTS", 10.2) == 0
    fill(doors, 2)
    assert doors.pause_s("CLIENTS", 10.25) == 0.75
    assert doors.pause_s("BROKERS", 10.25) == 0
    assert doors.pause_s("CLIENTS", 11.0) == 0


def test_a_listener_may_have_a_rate_of_its_own() -> None:
    doors = admission(listener_creation_rates={"BROKERS": 1}, privileged_listener="BROKERS")
    assert doors.pause_s("BROKERS", 10.0) == 0
    fill(doors, 1, "BROKERS")
    assert doors.pause_s("BROKERS", 10.5) == 0.5
    assert doors.pause_s("CLIENTS", 10.5) == 0


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

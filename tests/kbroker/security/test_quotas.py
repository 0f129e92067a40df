"""Which limit holds for whom."""

from __future__ import annotations

import math

import pytest

from kbroker.security.quotas import (
    ANY,
    CLIENT_KEYS,
    FETCHED,
    IP_KEYS,
    LONGEST_CLIENT_ID,
    PRODUCED,
    REQUESTED,
    ClientQuotas,
    Entity,
    parsed,
    stored,
    valid_limit,
)

IN_ORDER = (
    Entity("ann", "app"),
    Entity("ann", ANY),
    Entity("ann", None),
    Entity(ANY, "app"),
    Entity(ANY, ANY),
    Entity(ANY, None),
    Entity(None, "app"),
    Entity(None, ANY),
)
"""Those that hold for ann's app, the most specific first."""


def made(*entities: Entity) -> ClientQuotas:
    quotas = ClientQuotas(11, 1000, 11)
    for number, entity in enumerate(entities):
        quotas.replace(entity, {PRODUCED: 100.0 + number})
    return quotas


def test_the_most_specific_limit_wins() -> None:
    quotas = made(*IN_ORDER)
    for number, entity in enumerate(IN_ORDER):
        counter = quotas.counter(PRODUCED, "ann", "app")
        assert counter is not None
        assert counter.limit == 100 + number
        quotas.replace(entity, {})
    assert quotas.counter(PRODUCED, "ann", "app") is None
    assert quotas.is_used, "what was counted once is counted on"


@pytest.mark.parametrize(
    ("entity", "shares_with_other_client", "shares_with_other_user"),
    [
        (Entity("ann", ANY), False, False),
        (Entity(ANY, ANY), False, False),
        (Entity("ann", None), True, False),
        (Entity(ANY, None), True, False),
        (Entity(None, "app"), False, True),
        (Entity(None, ANY), False, True),
    ],
)
def test_the_level_of_the_limit_says_who_shares_it(
    entity: Entity, shares_with_other_client: bool, shares_with_other_user: bool
) -> None:
    quotas = made(entity)
    mine = quotas.counter(PRODUCED, "ann", "app")
    assert mine is not None
    assert (quotas.counter(PRODUCED, "ann", "other") is mine) is shares_with_other_client
    assert (quotas.counter(PRODUCED, "bob", "app") is mine) is shares_with_other_user


def test_a_changed_limit_holds_for_what_was_used_already() -> None:
    quotas = made(Entity("ann", None))
    quotas.replace(Entity("ann", None), {PRODUCED: 1e9})
    assert quotas.record(PRODUCED, "ann", "app", 50_000, 0) == 0
    quotas.replace(Entity("ann", None), {PRODUCED: 1000})
    assert quotas.record(PRODUCED, "ann", "app", 0, 0) == 40_000
    assert quotas.record(FETCHED, "ann", "app", 50_000, 0) == 0, "nothing limits that"


def test_a_request_waits_for_one_window_at_most() -> None:
    quotas = ClientQuotas(11, 1000, 11)
    quotas.replace(Entity(None, ANY), {REQUESTED: 1})
    assert quotas.record(REQUESTED, "ann", "app", 10_000, 0) == 1000


def test_limits_are_stored_as_kafka_stores_them() -> None:
    assert stored(CLIENT_KEYS, PRODUCED, 1024.0) == "1024"
    assert stored(CLIENT_KEYS, REQUESTED, 12.5) == "12.5"
    config = {PRODUCED: "1024", REQUESTED: "12.5", "SCRAM-SHA-256": "salt=x"}
    assert parsed(CLIENT_KEYS, config) == {PRODUCED: 1024.0, REQUESTED: 12.5}
    assert parsed(CLIENT_KEYS, {PRODUCED: "many"}) == {}


def test_what_makes_no_limit_is_told() -> None:
    assert valid_limit(CLIENT_KEYS, PRODUCED, 5) is None
    assert valid_limit(CLIENT_KEYS, PRODUCED, 5.00000001) is None
    assert valid_limit(CLIENT_KEYS, PRODUCED, float((1 << 63) - 1)) is None
    for kinds, key, value in (
        (CLIENT_KEYS, PRODUCED, 5.5),
        (CLIENT_KEYS, PRODUCED, 1e300),
        (IP_KEYS, next(iter(IP_KEYS)), 2.0**31),
        (CLIENT_KEYS, REQUESTED, -1),
        (CLIENT_KEYS, "connection_creation_rate", 5),
        (IP_KEYS, PRODUCED, 5),
    ):
        assert valid_limit(kinds, key, value) is not None


def test_counters_of_very_many_clients_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbroker.security.quotas.MOST_COUNTERS", 10)
    quotas = made(Entity(ANY, ANY))
    for number in range(100):
        quotas.record(PRODUCED, "ann", f"app{number}", 1, 0)
    assert len(quotas._counters) == 10


def test_of_a_long_client_id_only_the_beginning_is_remembered() -> None:
    """Clients choose it before they log in."""
    quotas = made(Entity(None, ANY))
    counters = {id(quotas.counter(PRODUCED, "ann", "x" * 30_000 + str(number))) for number in range(50)}
    quotas.counter(FETCHED, "ann", "x" * 30_000)
    assert len(counters) == 1
    assert {len(client) for _, _, client in quotas._found} == {LONGEST_CLIENT_ID}
    assert all(len(who.client or "") <= LONGEST_CLIENT_ID for _, who in quotas._counters)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_limit_is_a_number_and_has_an_end(value: float) -> None:
    for key in CLIENT_KEYS:
        assert "must be a number" in (valid_limit(CLIENT_KEYS, key, value) or "")
    assert parsed(CLIENT_KEYS, {REQUESTED: str(value), PRODUCED: "5"}) == {PRODUCED: 5.0}

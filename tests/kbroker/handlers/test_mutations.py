"""How many partitions a client may have made or deleted: strictly, or for older clients by waiting."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers.context import RequestContext
from kbroker.handlers.mutations import Mutations
from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.security.quotas import MUTATED, ClientQuotas, Entity

STRICT = 6


def mutations(quotas: ClientQuotas | None, version: int) -> Mutations:
    services: Any = SimpleNamespace(quotas=None if quotas is None else SimpleNamespace(quotas=quotas))
    return Mutations(services, RequestContext(19, version, 1, "app", 0, SimpleNamespace(principal="User:a")), STRICT)


def limited(limit: float) -> ClientQuotas:
    quotas = ClientQuotas(11, 1000, 10)
    quotas.replace(Entity("a", None), {MUTATED: limit})
    return quotas


def test_one_large_topic_passes_and_the_next_is_refused() -> None:
    made = mutations(limited(0.1), STRICT)
    made.take(50)
    assert made.delay_ms == 0
    with pytest.raises(KafkaError) as refused:
        made.take(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 400_000 < made.delay_ms <= 490_000


def test_older_clients_are_served_and_wait() -> None:
    made = mutations(limited(0.1), STRICT - 1)
    made.take(50)
    made.take(10)
    assert 500_000 < made.delay_ms <= 590_000


def test_without_a_limit_nothing_is_counted() -> None:
    for quotas in (None, ClientQuotas(11, 1000, 10), limited(1e9)):
        made = mutations(quotas, STRICT)
        made.take(1000)
        made.take(1000)
        assert made.delay_ms == 0

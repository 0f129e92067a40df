"""Who may change the levels of features, and to what."""

from __future__ import annotations

import pytest

from kbroker.controller.features import SUPPORTED, TRANSACTION_VERSION, Update, incompatibility, unsupported, updated
from kbroker.controller.znodes import BrokerRegistration
from kbroker.protocol.errors import ErrorCode, KafkaError

OURS = [BrokerRegistration(number, (), features={TRANSACTION_VERSION: 2}) for number in (1, 2)]
OLDER = BrokerRegistration(3, (), features={TRANSACTION_VERSION: 1})
KAFKAS = BrokerRegistration(4, ())


def test_a_level_is_raised_while_every_broker_supports_it() -> None:
    assert SUPPORTED == {TRANSACTION_VERSION: (0, 2)}
    assert updated({}, Update(TRANSACTION_VERSION, 2), OURS) == {TRANSACTION_VERSION: 2}
    assert updated({}, Update(TRANSACTION_VERSION, 1), [*OURS, OLDER]) == {TRANSACTION_VERSION: 1}
    assert updated({TRANSACTION_VERSION: 2}, Update(TRANSACTION_VERSION, 2), [KAFKAS]) == {TRANSACTION_VERSION: 2}


def test_a_level_is_lowered_whoever_is_there_and_goes_with_nought() -> None:
    present = {TRANSACTION_VERSION: 2, "other": 1}
    brokers = [*OURS, KAFKAS]
    lowered = updated(present, Update(TRANSACTION_VERSION, 1, may_lower=True), brokers)
    assert lowered == {TRANSACTION_VERSION: 1, "other": 1}
    for level in (0, -1):
        assert updated(present, Update(TRANSACTION_VERSION, level, may_lower=True), brokers) == {"other": 1}


@pytest.mark.parametrize(
    ("update", "why"),
    [
        (Update("metadata.version", 2), "there is no feature 'metadata.version': there is transaction.version"),
        (Update(TRANSACTION_VERSION, 3), "has the levels 0 to 2, and not 3"),
        (Update(TRANSACTION_VERSION, 0), "0 would be a downgrade, which has to be asked for"),
        (Update(TRANSACTION_VERSION, 2, may_lower=True), "2 would be no downgrade"),
        (
            Update(TRANSACTION_VERSION, 2),
            "broker 3 does not support transaction.version=2; broker 4 does not support transaction.version=2",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(update: Update, why: str) -> None:
    with pytest.raises(KafkaError, match=why) as refused:
        updated({TRANSACTION_VERSION: 1}, update, [*OURS, OLDER, KAFKAS])
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_what_a_broker_lacks_of_what_counts_is_named() -> None:
    assert incompatibility(OURS[0], {TRANSACTION_VERSION: 2}) is None
    assert incompatibility(KAFKAS, {TRANSACTION_VERSION: 0}) is None
    assert incompatibility(KAFKAS, {TRANSACTION_VERSION: 2, "x": 1}) == (
        "broker 4 does not support transaction.version=2, x=1"
    )
    assert unsupported({TRANSACTION_VERSION: 2}) == []
    assert unsupported({TRANSACTION_VERSION: 3, "x": 1}) == ["transaction.version=3", "x=1"]

"""Producer ids on a real broker."""

from typing import Any

import pytest

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import AllocateProducerIdsRequest
from kbroker.protocol.messages.transactions import InitProducerIdRequest
from tests.kbroker.asking import Ask, coordinator_of


@pytest.mark.parametrize("version", range(6))
async def test_every_producer_gets_an_id_of_its_own(ask: Ask, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answers = [await ask(request, version) for _ in range(3)]
    assert [(answer.error_code, answer.producer_epoch) for answer in answers] == [(ErrorCode.NONE, 0)] * 3
    assert len({answer.producer_id for answer in answers}) == 3


@pytest.mark.parametrize("version", range(6))
async def test_a_transactional_id_keeps_its_producer_id_and_gets_the_next_epoch(ask: Ask, version: int) -> None:
    transactional_id = f"mine-{version}"
    await coordinator_of(ask, transactional_id)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    answers = [await ask(request, version) for _ in range(3)]
    assert [(answer.error_code, answer.producer_epoch) for answer in answers] == [
        (ErrorCode.NONE, epoch) for epoch in range(3)
    ]
    assert len({answer.producer_id for answer in answers}) == 1


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_producer_that_was_fenced_cannot_go_on(ask: Ask, version: int) -> None:
    transactional_id = f"fenced-{version}"
    await coordinator_of(ask, transactional_id)
    begin = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    first = await ask(begin, version)
    goes_on = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
    )
    assert (await ask(goes_on, version)).producer_epoch == 1
    await ask(begin, version)
    late = await ask(goes_on, version)
    expected = ErrorCode.INVALID_PRODUCER_EPOCH if version == 3 else ErrorCode.PRODUCER_FENCED
    assert (late.error_code, late.producer_id, late.producer_epoch) == (expected, -1, -1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(ask: Ask, values: dict[str, Any], expected: ErrorCode) -> None:
    await coordinator_of(ask, "strange")
    fields = {"transactional_id": "strange", "transaction_timeout_ms": 60_000, **values}
    answer = await ask(InitProducerIdRequest(**fields), 4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (expected, -1, -1)


async def test_blocks_are_for_registered_brokers_of_the_right_epoch(ask: Ask) -> None:
    unknown = await ask(AllocateProducerIdsRequest(broker_id=9, broker_epoch=1), 0)
    assert unknown.error_code is ErrorCode.BROKER_ID_NOT_REGISTERED
    stale = await ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), 0)
    assert stale.error_code is ErrorCode.STALE_BROKER_EPOCH

"""Producer ids on a real broker."""

import pytest

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import AllocateProducerIdsRequest
from kbroker.protocol.messages.transactions import InitProducerIdRequest
from tests.kbroker.asking import Ask


@pytest.mark.parametrize("version", range(6))
async def test_every_producer_gets_an_id_of_its_own(ask: Ask, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    answers = [await ask(request, version) for _ in range(3)]
    assert [(answer.error_code, answer.producer_epoch) for answer in answers] == [(ErrorCode.NONE, 0)] * 3
    assert len({answer.producer_id for answer in answers}) == 3


async def test_a_transactional_id_finds_no_coordinator(ask: Ask) -> None:
    answer = await ask(InitProducerIdRequest(transactional_id="mine", transaction_timeout_ms=60_000), 4)
    assert answer.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    empty = await ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000), 4)
    assert empty.error_code is ErrorCode.INVALID_REQUEST


async def test_blocks_are_for_registered_brokers_of_the_right_epoch(ask: Ask) -> None:
    unknown = await ask(AllocateProducerIdsRequest(broker_id=9, broker_epoch=1), 0)
    assert unknown.error_code is ErrorCode.BROKER_ID_NOT_REGISTERED
    stale = await ask(AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), 0)
    assert stale.error_code is ErrorCode.STALE_BROKER_EPOCH

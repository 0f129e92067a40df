"""Who acts for a producer when it may not any more is told from one that may."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.simulation.impostors import HAS_EPOCHS, Impostor
from tests.simulation.promises import PromiseBroken

NONE, FENCED, INVALID = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE


class Coordinator:
    """Answers each request with the next code that it was given for its kind; the last one stays."""

    address = "broker-1:9092"

    def __init__(self, adds: list[ErrorCode], ends: list[ErrorCode], epoch_after: int = 1) -> None:
        self._adds, self._ends = _then_last(adds), _then_last(ends)
        self._epoch_after = epoch_after

    def version_for(self, kind: type[Any]) -> int:
        """Return the newest."""
        return HAS_EPOCHS

    async def request(self, message: Any, version: int | None = None, *, timeout: float) -> Any:
        """Answer."""
        if isinstance(message, InitProducerIdRequest):
            return InitProducerIdResponse(error_code=NONE, producer_id=1, producer_epoch=0)
        if isinstance(message, EndTxnRequest):
            return EndTxnResponse(error_code=next(self._ends), producer_id=1, producer_epoch=self._epoch_after)
        assert isinstance(message, AddPartitionsToTxnRequest)
        answer = AddPartitionsToTxnResponse
        one = answer.AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=next(self._adds))
        topic = answer.AddPartitionsToTxnTopicResult(name="things", results_by_partition=[one])
        return answer(results_by_topic_v3_and_below=[topic])


def _then_last(codes: list[ErrorCode]) -> Iterator[ErrorCode]:
    yield from codes
    while True:
        yield codes[-1]


@pytest.fixture
def impostor() -> Impostor:
    trial: Any = SimpleNamespace(processes=lambda: 1, keys=["things:0"])
    return Impostor(trial, "", random.Random(1))


@pytest.mark.parametrize(
    ("visit", "coordinator"),
    [
        ("_abort_what_is_committed", Coordinator([NONE], [NONE, INVALID])),
        ("_abort_what_is_committed", Coordinator([NONE], [FENCED])),
        ("_go_on_beside_another", Coordinator([NONE, FENCED], [FENCED])),
        ("_begin_two", Coordinator([NONE], [NONE])),
        ("_begin_two", Coordinator([FENCED], [NONE], epoch_after=0)),
    ],
)
async def test_a_coordinator_that_refuses_keeps_its_promise(impostor: Impostor, visit: str, coordinator: Any) -> None:
    await getattr(impostor, visit)(coordinator, "things:0")


@pytest.mark.parametrize(
    ("visit", "coordinator"),
    [
        ("_abort_what_is_committed", Coordinator([NONE], [NONE])),
        ("_go_on_beside_another", Coordinator([NONE], [FENCED])),
        ("_go_on_beside_another", Coordinator([NONE, FENCED], [NONE])),
        ("_begin_two", Coordinator([NONE], [NONE], epoch_after=0)),
    ],
)
async def test_a_coordinator_that_lets_everybody_go_on_is_found(
    impostor: Impostor, visit: str, coordinator: Any
) -> None:
    with pytest.raises(PromiseBroken, match="impostor-1-1"):
        await getattr(impostor, visit)(coordinator, "things:0")

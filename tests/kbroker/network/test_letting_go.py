"""Large messages are freed in turns of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers.context import RequestContext
from kbroker.handlers.demands import nothing
from kbroker.handlers.refusals import blank
from kbroker.handlers.registry import handles
from kbroker.network.dispatch import Dispatcher
from kbroker.network.letting_go import let_go
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.protocol.messages.transactions import AddPartitionsToTxnRequest
from kbroker.replica.turns import PORTION
from tests.controller.conftest import until
from tests.fixtures.others import Others
from tests.kbroker.network.test_dispatch import Peer, handlers, metadata_frame

__all__ = ["handlers"]

MANY = 30 * PORTION

Topic = MetadataResponse.MetadataResponseTopic


@pytest.fixture
def freed(others: Others) -> Counter[int]:
    """Turn of the loop -> how many were freed in it."""
    Noted.freed, Noted.others = Counter(), others
    return Noted.freed


class Noted(str):
    """A name of its own for each struct, freed with it."""

    freed: Counter[int]
    others: Others

    def __del__(self) -> None:
        self.freed[self.others.turns] += 1


async def test_structs_that_lie_in_others_are_freed_in_turns(
    freed: Counter[int], others: Others, short_turns: None
) -> None:
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=Noted("t"), partitions=[0]) for _ in range(MANY)]
    request = AddPartitionsToTxnRequest(transactions=[blank(transaction, topics=topics)])
    kept = topics[:PORTION]
    let_go(request)
    del request, topics
    await until(lambda: freed.total() == MANY - PORTION)
    assert max(freed.values()) <= 2 * PORTION
    assert [each.name for each in kept] == ["t"] * PORTION, "whoever else holds some has them whole"


@pytest.mark.parametrize("is_late", [False, True])
async def test_large_requests_and_answers_are_freed_in_turns(
    handlers: dict[int, Any], is_late: bool, freed: Counter[int], others: Others, short_turns: None
) -> None:
    def answer() -> MetadataResponse:
        topics = [Topic(error_code=ErrorCode.NONE, name=Noted("t"), partitions=[]) for _ in range(MANY)]
        return MetadataResponse(brokers=[], controller_id=1, topics=topics)

    async def later() -> MetadataResponse:
        await asyncio.sleep(0)
        return answer()

    @handles(MetadataRequest, nothing("a test"))
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        request.topics[:] = [MetadataRequest.MetadataRequestTopic(name=Noted("t")) for _ in range(MANY)]
        return later() if is_late else answer()

    peer: Any = Peer()
    Dispatcher(SimpleNamespace())(peer, metadata_frame(MANY))  # type: ignore[arg-type]
    assert await asyncio.wait_for(peer.answers.get(), 30)
    await until(lambda: freed.total() == 2 * MANY)
    assert max(freed.values()) <= 4 * PORTION

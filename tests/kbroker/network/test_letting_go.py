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
from kbroker.network import letting_go
from kbroker.network.dispatch import Dispatcher
from kbroker.network.letting_go import CancelledInTurn, let_go
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.protocol.messages.transactions import AddPartitionsToTxnRequest
from kbroker.replica.turns import MOST_AT_A_TURN, PORTION
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


@pytest.mark.slow
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


async def test_of_what_is_let_go_in_one_turn_only_some_begins_in_it(
    others: Others, short_turns: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: Counter[int] = Counter()
    elements = letting_go._elements

    def noted(structs: list[Any]) -> list[Any]:
        looked_at[others.turns] += len(structs)
        return elements(structs)

    monkeypatch.setattr(letting_go, "_elements", noted)
    messages = 10 * MOST_AT_A_TURN
    topics = [MetadataRequest.MetadataRequestTopic(name="t") for _ in range(2 * PORTION)]
    for _ in range(messages):
        let_go(MetadataRequest(topics=topics))
    await until(lambda: looked_at.total() == messages * (1 + 2 * PORTION))
    assert max(looked_at.values()) <= 3 * MOST_AT_A_TURN * PORTION
    assert looked_at[min(looked_at)] <= MOST_AT_A_TURN + 2, "of the others not even the message"


@pytest.mark.parametrize(("share", "at_a_turn"), [(1.0, 1), (0.25, 4)])
async def test_what_works_for_clients_who_are_gone_is_cancelled_little_by_little(
    others: Others, share: float, at_a_turn: int
) -> None:
    ended: Counter[int] = Counter()

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended[others.turns] += 1

    tasks = [asyncio.create_task(work()) for _ in range(10 * at_a_turn)]
    await asyncio.sleep(0)
    for task in tasks:
        CancelledInTurn(task, share).cancel()
    await until(lambda: ended.total() == len(tasks))
    assert set(ended.values()) == {at_a_turn}
    await until(lambda: all(task.cancelled() for task in tasks))

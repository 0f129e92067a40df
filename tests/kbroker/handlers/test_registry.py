"""The table of handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.handlers import load_all, registry
from kbroker.handlers.context import RequestContext
from kbroker.handlers.demands import nothing
from kbroker.handlers.registry import CloseConnection
from kbroker.network.dispatch import PENDING, Dispatcher
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.messages.groups import HeartbeatRequest
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.replica.turns import in_turns, is_long_work_under_way
from tests.kbroker.network.test_dispatch import Peer, handlers, metadata_frame

__all__ = ["handlers"]


def test_a_handler_is_found_by_the_key_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "HANDLERS", {})

    @registry.handles(HeartbeatRequest, nothing("a test"))
    def heartbeat() -> None: ...

    assert registry.HANDLERS[12].handler is heartbeat


def test_a_handler_that_demands_nothing_and_does_not_say_so_fails_at_import() -> None:
    with pytest.raises(TypeError, match=r"HeartbeatRequest.*does not say what its sender must be allowed"):
        registry.handles(HeartbeatRequest)


def test_small_requests_for_all_of_a_group_or_of_all_tokens_stand_in_line() -> None:
    load_all()
    for key in (9, 15, 41, 69):
        assert registry.HANDLERS[key].asks_for_much is not None, API_BY_KEY[key].name


def test_what_only_reads_ends_with_its_connection() -> None:
    """What changes something goes on without the client that wanted it; a Fetch says so of itself."""
    load_all()
    names = {API_BY_KEY[key].name for key, handling in registry.HANDLERS.items() if handling.ends_with_connection}
    assert names == {
        "ConsumerGroupDescribe",
        "DescribeAcls",
        "DescribeClientQuotas",
        "DescribeConfigs",
        "DescribeDelegationToken",
        "DescribeGroups",
        "DescribeProducers",
        "DescribeTransactions",
        "DescribeUserScramCredentials",
        "ListGroups",
        "ListOffsets",
        "ListPartitionReassignments",
        "ListTransactions",
        "OffsetFetch",
        "OffsetForLeaderEpoch",
    }


def test_loading_all_handlers_fills_the_table() -> None:
    load_all()
    assert {0, 1, 3, 18, 22} <= registry.HANDLERS.keys()


@pytest.mark.parametrize("topics", [1, 3_000])
@pytest.mark.parametrize("is_judged", [False, True])
async def test_work_in_turns_of_what_only_reads_ends_with_its_connection(
    handlers: dict[int, Any], topics: int, is_judged: bool
) -> None:
    """While it is looked at whether it is allowed, too; the generators are closed by it."""
    ended: list[bool] = []

    def endless(*_: Any) -> Generator[None, None, Any]:
        try:
            while True:
                yield
        finally:
            ended.append(True)

    @registry.handles(MetadataRequest, endless if is_judged else nothing("a test"), ends_with_connection=True)
    def handler(services: Any, ctx: RequestContext, request: Any) -> Any:
        return in_turns(endless())

    peer = Peer()
    authorizer: Any = SimpleNamespace(authority=lambda *_: SimpleNamespace(principal=peer.principal))
    asked = Dispatcher(SimpleNamespace(), authorizer if is_judged else None)  # type: ignore[arg-type]
    assert asked(peer, metadata_frame(topics)) is PENDING  # type: ignore[arg-type]
    waiting = await asyncio.wait_for(peer.waiting.get(), 30)
    await asyncio.sleep(0.02)
    assert ended == []
    waiting.cancel()
    del waiting
    assert isinstance(await asyncio.wait_for(peer.answers.get(), 20), CloseConnection)
    assert ended == [True]
    assert not is_long_work_under_way()

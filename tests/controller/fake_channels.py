"""Brokers that say yes to everything: channels for tests of the runner, answering on the loop's next turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.replication import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


class FakeChannels:
    """Keeps what was sent, per broker in order, and what metadata each broker would have now."""

    def __init__(self) -> None:
        self.addresses: dict[int, tuple[str, int]] = {}
        self.sent: list[tuple[int, Any, int]] = []
        self.leaders: dict[int, dict[tuple[str, int], int]] = {}

    def add_broker(self, broker_id: int, host: str, port: int, on_behind: Callable[[], None]) -> None:
        self.addresses[broker_id] = (host, port)

    def remove_broker(self, broker_id: int) -> None:
        self.addresses.pop(broker_id, None)

    def send(self, broker_id: int, request: Any, version: int, on_response: Callable[[Any], None]) -> None:
        if broker_id not in self.addresses:
            return
        self.sent.append((broker_id, request, version))
        asyncio.get_running_loop().call_soon(lambda: on_response(self._answer(broker_id, request)))

    def waiting(self) -> dict[int, int]:
        return dict.fromkeys(self.addresses, 0)

    def requests_to(self, broker_id: int) -> list[Any]:
        return [request for receiver, request, _ in self.sent if receiver == broker_id]

    def _answer(self, broker_id: int, request: Any) -> Any:
        if isinstance(request, UpdateMetadataRequest):
            known = self.leaders.setdefault(broker_id, {})
            for topic in request.topic_states:
                for each in topic.partition_states:
                    where = (topic.topic_name, each.partition_index)
                    if each.leader == -2:
                        known.pop(where, None)
                    else:
                        known[where] = each.leader
        return yes_to(request)


def yes_to(request: Any) -> Any:
    """Return the answer of a broker that has done all that a controller's request asks for."""
    if isinstance(request, UpdateMetadataRequest):
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)
    if isinstance(request, StopReplicaRequest):
        return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=[])
    assert isinstance(request, LeaderAndIsrRequest)
    answered = LeaderAndIsrResponse
    topics = [
        answered.LeaderAndIsrTopicError(
            topic_id=topic.topic_id,
            partition_errors=[
                answered.LeaderAndIsrPartitionError(partition_index=each.partition_index, error_code=ErrorCode.NONE)
                for each in topic.partition_states
            ],
        )
        for topic in request.topic_states
    ]
    return answered(error_code=ErrorCode.NONE, topics=topics)

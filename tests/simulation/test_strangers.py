"""What strangers are told is passed on, where it promises something."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.produce import ProduceResponse
from tests.simulation.strangers import Stranger


class Leader:
    """Takes what it is sent with the code that it was given; its reign may be over by then."""

    address = "broker-1:9092"

    def __init__(self, code: ErrorCode = ErrorCode.NONE, epochs: tuple[int, int] = (7, 7), lives: int = 1) -> None:
        self._code, self._epochs, self._lives = code, list(epochs), lives
        self.acks: list[int] = []

    async def request(self, message: Any, *, timeout: float) -> Any:
        """Answer."""
        self.acks.append(message.acks)
        self._lives += self._lives - 1
        one = ProduceResponse.PartitionProduceResponse(index=0, error_code=self._code, base_offset=5)
        topic = ProduceResponse.TopicProduceResponse(name="things", partition_responses=[one])
        return ProduceResponse(responses=[topic])

    def leader(self, topic: str, partition: int) -> tuple[str, int]:
        """Lead, in one epoch and then in another."""
        return "broker-1", self._epochs.pop(0)

    def epochs(self, host: str) -> tuple[int, int]:
        """Live."""
        return 1, self._lives


@pytest.mark.parametrize(
    ("leader", "told"),
    [
        (Leader(), [("things:0", 5, 1)]),
        (Leader(ErrorCode.KAFKA_STORAGE_ERROR), []),
        (Leader(epochs=(7, 8)), []),
        (Leader(lives=2), []),
    ],
)
async def test_what_a_leader_alone_has_to_keep_counts_while_it_reigns(leader: Leader, told: list[Any]) -> None:
    noted, acknowledged = [], list[Any]()
    trial: Any = SimpleNamespace(
        processes=lambda: 1,
        values=lambda: 1,
        keys=["things:0"],
        recorder=SimpleNamespace(record=lambda process, kind, f, operations, **more: noted.append(kind)),
    )
    stranger = Stranger(trial, "", random.Random(1))
    stranger.leader, stranger.epochs = leader.leader, leader.epochs
    stranger.on_acknowledged = lambda *what: acknowledged.append(what)
    connection: Any = leader
    await stranger.send_in_haste(connection, "things:0")
    assert (acknowledged, leader.acks) == (told, [1])
    assert noted == ["invoke", "info"], "it may be lost, whoever is told of it"

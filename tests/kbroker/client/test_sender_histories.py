"""The producer's sender against a network with random faults; its broker keeps a real log's producer state.

Whatever is lost, refused, split or given up: no record is stored twice or before an earlier one, what is acknowledged
is where its future says, and callbacks come in the order of the records.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbroker.client.client_config import ProducerConfig
from kbroker.client.delivery import Delivery
from kbroker.client.errors import BrokerError, DeliveryTimeout
from kbroker.client.sender import Sender
from kbroker.client.types import RecordMetadata
from kbroker.protocol.errors import ErrorCode
from tests.kbroker.client.played_network import PARTITIONS, REFUSALS, TOPIC, Fate, PlayedNetwork

LIMIT_S = 60.0


class Heard:
    """What the callbacks say, partition by partition."""

    def __init__(self) -> None:
        self.values: dict[int, list[int]] = defaultdict(list)
        self.errors: dict[int, Exception] = {}
        self.places: dict[int, tuple[int, int]] = {}

    def listener(self, number: int, partition: int) -> Callable[[RecordMetadata | None, Exception | None], None]:
        def hear(metadata: RecordMetadata | None, error: Exception | None) -> None:
            self.values[partition].append(number)
            if metadata is None:
                assert error is not None
                self.errors[number] = error
            else:
                self.places[number] = (metadata.partition, metadata.offset)

        return hear


async def play(fates: Sequence[Fate], records: int, per_batch: int) -> tuple[PlayedNetwork, Heard, list[Delivery]]:
    """Send records, waiting now and then, until all have an outcome."""
    config = ProducerConfig(bootstrap="played:1", linger_ms=0, retry_backoff_ms=1, retry_backoff_max_ms=1)
    network, heard = PlayedNetwork(fates), Heard()
    network.sender = sender = Sender(config, cast(Any, network))
    accumulator = sender.accumulator
    sender.learn(TOPIC)
    deliveries = []
    for number in range(records):
        partition = number // per_batch % PARTITIONS
        listener = heard.listener(number, partition)
        delivery = accumulator.append(TOPIC, b"%d" % number, None, partition, 1, (), listener)
        assert delivery is not None
        deliveries.append(delivery)
        if number % per_batch == per_batch - 1:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    async with asyncio.timeout(LIMIT_S):
        await sender.flush()
        while sender.requests_in_flight:  # noqa: ASYNC110 - what was too late has its outcome before its answer
            await asyncio.sleep(0.001)
    assert accumulator.used == 0
    assert all(queue.is_idle and not queue.in_flight for queue in accumulator.topics[TOPIC].queues)
    await sender.close(1)
    return network, heard, deliveries


def check(network: PlayedNetwork, heard: Heard, deliveries: list[Delivery]) -> None:
    for log in network.logs.values():
        numbers = [int(value) for value in log]
        assert numbers == sorted(set(numbers)), f"stored twice, or in another order: {numbers}"
    for partition, numbers in heard.values.items():
        assert numbers == sorted(numbers), f"callbacks of partition {partition} come in another order: {numbers}"
    assert sum(map(len, heard.values.values())) == len(deliveries)
    for number, delivery in enumerate(deliveries):
        error = delivery.exception(0)
        if error is None:
            partition, offset = heard.places[number]
            assert network.logs[partition][offset] == b"%d" % number
        else:
            assert error is heard.errors[number]
            is_refused = isinstance(error, BrokerError) and error.code in REFUSALS.values()
            assert getattr(error, "code", None) is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a new epoch would help"
            assert is_refused or isinstance(error, DeliveryTimeout), f"record {number}: {error!r}"
            is_stored = any(b"%d" % number in log for log in network.logs.values())
            assert not (is_refused and is_stored), f"record {number} was refused and is stored"


S, A, L = Fate.STORED, Fate.ANSWER_LOST, Fate.LOST


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(list(Fate)), max_size=25), st.integers(1, 60), st.integers(1, 4))
@example([S, S, S, S, Fate.REFUSED, S, S, S], 24, 2)  # those behind a refused one are sent already
@example([S, S, Fate.ANSWER_LOST_AND_TOO_LATE, A, A], 24, 2)  # given up, stored all the same; so are those behind it
@example([S, S, Fate.LOST_AND_TOO_LATE, S, S], 24, 2)
@example([Fate.REFUSED_FOR_NOW, S, S], 12, 2)  # the first of all
@example([Fate.NOT_SENT] * 3, 1, 1)
@example([S, S, Fate.ANSWERED_LATER, Fate.TOO_LARGE, S, L], 24, 4)
@example([S, S, Fate.OUT_OF_ORDER, S, S, S], 24, 2)
@example([S, S, Fate.ANSWERED_TOO_LATE, S, S, S], 24, 2)
def test_whatever_the_network_does_records_are_stored_once_and_in_order(
    fates: list[Fate], records: int, per_batch: int
) -> None:
    check(*asyncio.run(play(fates, records, per_batch)))

"""A producer's transactions over a network with random faults: each is read whole, or nothing of it, in order.

What is committed was acknowledged as that; what was aborted is never read; nothing stays undecided; what arrives late,
because its connection had ended, changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kbroker.client.client_config import ProducerConfig
from kbroker.client.errors import AbortableError
from kbroker.client.sender import Sender
from tests.kbroker.client.played_coordinator import Asked, PlayedCoordinator
from tests.kbroker.client.played_network import PARTITIONS, TOPIC, Fate

LIMIT_S = 30.0
CONFIG = ProducerConfig(
    bootstrap="played:1", linger_ms=0, retry_backoff_ms=1, retry_backoff_max_ms=1, transactional_id="x"
)
COMMIT, ABORT = True, False
Plan = tuple[int, bool]
"""So many records, and how the transaction is to end."""


async def play(
    fates: Sequence[Fate], asked: Sequence[Asked], plans: Sequence[Plan]
) -> tuple[PlayedCoordinator, dict[int, bool]]:
    """Run transactions; returns the number of each record with whether its transaction was committed."""
    network = PlayedCoordinator(CONFIG, fates, asked)
    network.sender = sender = Sender(CONFIG, cast(Any, network))
    sender.learn(TOPIC)
    transactions = sender.transactions
    assert transactions is not None
    outcomes: dict[int, bool] = {}
    number = 0
    async with asyncio.timeout(LIMIT_S):
        for count, ending in plans:
            await transactions.begin()
            mine = range(number, number + count)
            number += count
            try:
                for each in mine:
                    sender.accumulator.append(TOPIC, b"%d" % each, None, each % PARTITIONS, 1, ())
                    if each % 3 == 0:
                        await asyncio.sleep(0)
                if ending is COMMIT:
                    await transactions.commit()
            except AbortableError:
                ending = ABORT
            if ending is ABORT:
                await transactions.abort()
            outcomes |= dict.fromkeys(mine, ending)
            await asyncio.sleep(0)
        network.stray(100)
        await sender.close(1)
    return network, outcomes


A, L, AL = Asked.ANSWERED, Asked.LOST, Asked.ANSWER_LOST
S = Fate.STORED


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([fate for fate in Fate if fate is not Fate.NOT_SENT]), max_size=20),
    st.lists(st.sampled_from(list(Asked)), max_size=25),
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=8),
)
@example([Fate.LOST], [], [(4, ABORT), (4, COMMIT)])  # what is aborted arrives in the next transaction
@example([S, Fate.LOST_AND_TOO_LATE], [], [(4, COMMIT), (4, COMMIT)])
@example([], [A, A, AL], [(4, COMMIT), (4, COMMIT)])  # committed, and nobody hears of it
@example([], [A, L], [(4, ABORT), (4, COMMIT)])  # the coordinator may have heard of it, or not
@example([], [A, Asked.ABORTABLE], [(4, COMMIT), (4, COMMIT)])
@example([Fate.REFUSED], [], [(4, COMMIT), (4, COMMIT)])
@example([Fate.TOO_LARGE], [], [(9, COMMIT)])
@example([Fate.OUT_OF_ORDER], [], [(4, COMMIT), (4, COMMIT)])
def test_whatever_the_network_does_a_transaction_is_read_whole_or_not_at_all(
    fates: list[Fate], asked: list[Asked], plans: list[Plan]
) -> None:
    network, outcomes = asyncio.run(play(fates, asked, plans))
    for partition in range(PARTITIONS):
        committed, undecided = network.read_committed(partition)
        assert committed == [number for number, ok in outcomes.items() if ok and number % PARTITIONS == partition]
        assert undecided == []

"""Faults end with their undoing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from tests.simulation.deaths import kill_between_markers
from tests.simulation.events import hold_orders


async def test_no_controller_is_deposed_after_all_is_healed() -> None:
    expired: list[int] = []
    world: Any = SimpleNamespace(
        controller_id=lambda: 1,
        rng=SimpleNamespace(choice=lambda each: each[0], random=lambda: 0.01),
        brokers={each: SimpleNamespace(host=f"broker-{each}") for each in (1, 2, 3)},
        network=Mock(),
        zookeeper=SimpleNamespace(expire=expired.append),
    )
    _, undo = hold_orders(world)
    undo()
    await asyncio.sleep(0.03)
    assert expired == [3], "only the session of whom it has to tell"
    world.network.mend.assert_called_once_with()


async def test_who_decides_a_transaction_is_killed_once_and_started_again_when_all_is_healed() -> None:
    decides = {1: False, 2: False, 3: False}
    killed, started = asyncio.Queue[int](), list[int]()
    world: Any = SimpleNamespace(
        workload="txn",
        brokers={
            each: SimpleNamespace(broker_id=each, is_deciding=lambda each=each: decides[each]) for each in decides
        },
        tell=Mock(),
        kill=killed.put_nowait,
        start=started.append,
    )
    _, undo = kill_between_markers(world)
    decides[2] = True
    assert await asyncio.wait_for(killed.get(), 30) == 2
    undo()
    assert killed.empty()
    assert started == [2]

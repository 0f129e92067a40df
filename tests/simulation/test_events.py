"""Faults end with their undoing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

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

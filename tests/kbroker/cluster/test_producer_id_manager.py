"""Producer ids out of blocks, with a controller that is played."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cluster import producer_id_manager
from kbroker.cluster.producer_id_manager import ProducerIdManager
from kbroker.protocol.errors import ErrorCode, KafkaError


class Controller:
    """Hands out blocks of ten; `fails` of its answers are refusals."""

    def __init__(self, fails: int = 0) -> None:
        self.asked = 0
        self.fails = fails

    async def allocate(self) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            return SimpleNamespace(error_code=ErrorCode.NOT_CONTROLLER)
        first = 10 * self.asked
        return SimpleNamespace(error_code=ErrorCode.NONE, producer_id_start=first, producer_id_len=10)


async def test_ids_come_from_one_block_after_the_other() -> None:
    controller = Controller()
    manager = ProducerIdManager(controller.allocate)
    assert [await manager.next_id() for _ in range(25)] == list(range(10, 35))
    await manager.close()


async def test_the_next_block_is_asked_for_before_the_present_one_is_used_up() -> None:
    controller = Controller()
    manager = ProducerIdManager(controller.allocate)
    for _ in range(9):
        await manager.next_id()
    await asyncio.sleep(0.01)
    assert controller.asked == 2
    await manager.close()


async def test_many_at_once_get_different_ids() -> None:
    manager = ProducerIdManager(Controller().allocate)
    ids = await asyncio.gather(*(manager.next_id() for _ in range(10)))
    assert len(set(ids)) == 10
    await manager.close()


async def test_a_refusal_is_tried_again() -> None:
    manager = ProducerIdManager(Controller(fails=2).allocate)
    assert await asyncio.wait_for(manager.next_id(), 20) == 30
    await manager.close()


async def test_without_a_controller_the_client_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_id_manager, "WAIT_S", 0.1)
    manager = ProducerIdManager(Controller(fails=1000).allocate)
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await manager.next_id()
    await manager.close()

from __future__ import annotations

import asyncio
import time

from kbroker.coordinator.group import Group
from kbroker.coordinator.group_events import GroupSettings
from kbroker.coordinator.group_timers import GroupTimers
from kbroker.coordinator.member import NEVER
from kbroker.replica.turns import TURN_S


class Clock:
    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


def group(name: str, deadline: int) -> Group:
    made = Group(name, GroupSettings(), 0)
    made.deadline = deadline
    return made


async def test_groups_fire_in_order_when_their_time_has_come() -> None:
    clock, fired = Clock(), []
    timers: GroupTimers[Group] = GroupTimers(clock, lambda each: fired.append(each.group_id))
    for name, deadline in (("late", 3000), ("soon", 1500), ("sooner", 1200)):
        timers.schedule(group(name, deadline))
    timers.run_due()
    assert fired == []
    clock.now = 1600
    timers.run_due()
    assert fired == ["sooner", "soon"]
    timers.close()


async def test_an_earlier_deadline_replaces_a_later_one_and_a_later_one_needs_no_entry() -> None:
    clock, fired = Clock(), []
    timers: GroupTimers[Group] = GroupTimers(clock, lambda each: fired.append(each.deadline))
    moving = group("g", 5000)
    timers.schedule(moving)
    moving.deadline = 2000
    timers.schedule(moving)
    moving.deadline = 9000
    timers.schedule(moving)
    clock.now = 2500
    timers.run_due()
    assert fired == [9000]
    assert moving.scheduled_at == NEVER
    clock.now = 10_000
    timers.run_due()
    assert fired == [9000]
    timers.close()


async def test_the_loops_timer_fires_by_itself() -> None:
    fired = asyncio.Event()
    loop = asyncio.get_running_loop()
    timers: GroupTimers[Group] = GroupTimers(lambda: int(loop.time() * 1000), lambda each: fired.set())
    timers.schedule(group("g", int(loop.time() * 1000) + 20))
    await asyncio.wait_for(fired.wait(), 20)
    timers.close()


async def test_thousands_of_groups_that_are_due_at_once_take_turns_of_the_loop() -> None:
    loop, fired = asyncio.get_running_loop(), []
    at_once: list[int] = []

    def fire(each: Group) -> None:
        time.sleep(TURN_S / 10)
        fired.append(each.group_id)

    timers: GroupTimers[Group] = GroupTimers(lambda: int(loop.time() * 1000), fire)
    for number in range(40):
        timers.schedule(group(str(number), int(loop.time() * 1000)))
    async with asyncio.timeout(20):
        while len(fired) < 40:
            before = len(fired)
            await asyncio.sleep(0)
            at_once.append(len(fired) - before)
    assert max(at_once) <= 11
    assert sorted(fired, key=int) == [str(number) for number in range(40)]
    timers.close()

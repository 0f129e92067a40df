"""Virtual time: what is idle costs nothing, what asyncio promises holds, chance comes from the seed alone."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.simulation.loop import STARTED_AT_S, TURN_S, Machine, Simulation, StandsStill


def test_a_year_in_which_nothing_happens_takes_no_time() -> None:
    simulation = Simulation(seed=1)
    machine = simulation.machine("a")
    task = machine.create_task(asyncio.sleep(365 * 86_400, "over"))
    began = time.thread_time()
    assert simulation.run(366 * 86_400, task.done)
    assert time.thread_time() - began < 1
    assert task.result() == "over"
    assert simulation.now >= STARTED_AT_S + 365 * 86_400


def test_what_one_machine_called_first_runs_first_whatever_the_seed() -> None:
    for seed in range(20):
        simulation = Simulation(seed)
        machine, found = simulation.machine("a"), list[int]()
        for number in range(50):
            machine.call_soon(found.append, number)
        simulation.run(1, lambda: len(found) == 50)  # noqa: B023
        assert found == list(range(50))


def interleaved(seed: int) -> str:
    """Return in which order three machines did what they had to do, jobs of executors too."""
    simulation, found = Simulation(seed), list[str]()

    async def live(machine: Machine) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
            await machine.run_in_executor(None, found.append, machine.host)

    tasks = [machine.create_task(live(machine)) for machine in map(simulation.machine, "abc")]
    assert simulation.run(10, lambda: all(task.done() for task in tasks))
    return "".join(found)


def test_the_same_seed_is_the_same_order_and_another_seed_another_one() -> None:
    assert interleaved(7) == interleaved(7)
    assert len({interleaved(seed) for seed in range(10)}) == 10


def test_nothing_of_a_killed_machine_runs_and_no_finally_of_it_is_reached() -> None:
    simulation, found = Simulation(seed=1), list[str]()
    machine = simulation.machine("a")
    simulation.machine("b").call_later(100, found.append, "b goes on")

    async def live() -> None:
        try:
            found.append("began")
            await asyncio.sleep(10)
        finally:
            found.append("never")

    machine.create_task(live())
    simulation.run(5)
    simulation.kill(machine)
    simulation.run(200, lambda: len(found) > 1)
    assert found == ["began", "b goes on"]


def test_a_machine_that_stands_still_does_all_of_it_later() -> None:
    simulation, seen = Simulation(seed=1), list[float]()
    machine = simulation.machine("a")
    for delay in (1.0, 2.0, 3.0):
        machine.call_later(delay, lambda: seen.append(simulation.now - STARTED_AT_S))
    machine.stands_still_until = STARTED_AT_S + 2.5
    simulation.run(10, lambda: len(seen) == 3)
    assert seen == pytest.approx([2.5, 2.5, 3.0], abs=10 * TURN_S)


def test_a_world_in_which_nothing_can_happen_any_more_says_who_waits() -> None:
    simulation = Simulation(seed=1)
    machine = simulation.machine("a")

    async def waits_for_ever() -> None:
        await machine.create_future()

    task = machine.create_task(waits_for_ever())
    with pytest.raises(StandsStill, match=r"a: .*waits_for_ever"):
        simulation.run(10)
    machine.create_task(asyncio.sleep(0)).add_done_callback(lambda _: task.cancel())
    with pytest.raises(StandsStill):
        simulation.run(10)
    assert task.cancelled()


def test_an_executor_that_is_shut_down_takes_no_job_and_does_none_that_waits() -> None:
    simulation, found = Simulation(seed=1), list[str]()
    machine, pool = simulation.machine("a"), ThreadPoolExecutor(1)
    waiting = machine.run_in_executor(pool, found.append, "done")
    pool.shutdown()
    simulation.run(1, waiting.done)
    assert waiting.cancelled()
    assert found == []
    with pytest.raises(RuntimeError, match="shutdown"):
        machine.run_in_executor(pool, found.append, "done")

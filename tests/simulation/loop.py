"""Virtual time: one event loop per machine, driven turn by turn in an order that a seed draws.

    simulation = Simulation(seed=7)
    machine = simulation.machine("broker-1")
    machine.create_task(serve())
    simulation.run(60)                       # seconds of virtual time; what is idle costs nothing

A machine's own callbacks run in the order in which asyncio promises to run them. Which machine comes next is drawn, and
so is how long an executor's job waits, and how long its result. A machine that was killed never runs again: its tasks
stay where they are, and no `finally` of theirs is reached.
"""

from __future__ import annotations

import asyncio
import random
import threading
from asyncio import events
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

TURN_S = 0.00002
"""What a turn of a loop takes."""
LOOK_S = 0.000001
"""What it takes to look at the clock: whoever works until a time is up comes to an end."""
STARTED_AT_S = 1000.0
"""What the steady clock says at the beginning; the one on the wall counts from 1970."""
EPOCH_S = 1_700_000_000.0 - STARTED_AT_S
CANCELLED_TIMERS = 100
"""So many are worth a new heap, when they are most of it."""
NEVER = float("inf")


class StandsStill(Exception):
    """Nothing is left that could ever happen; the text says what everybody waits for."""


class Descriptor(Protocol):
    """What a loop waits on: a socket of the simulated network. It says itself when it can be read (`readable`)."""

    @property
    def is_writable(self) -> bool:
        """Whether writing would not block."""


class Simulation:
    """Time, chance and all machines."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now = STARTED_AT_S
        self.machines: list[Machine] = []
        self.turns = 0
        self.after_turn: Callable[[Machine], None] = lambda machine: None
        """Looks at the machine whose turn is over, if it is watched, or if it is time for a look."""
        self.next_look = NEVER
        self.connect: Callable[..., Any] | None = None
        """The network's way to open a connection."""
        self._ready: list[Machine] = []
        """Those that have something to do, each once. One that was stopped meanwhile is found out when it is drawn."""
        self._wakings: list[tuple[float, int, Machine]] = []
        """A heap: when to look whether a machine has something to do."""
        self._asked = 0
        self._graves: list[Machine] = []
        """What was killed is kept: a task that is collected would run its `finally`."""

    def look_at_clock(self) -> float:
        """Return the steady clock's time; looking takes a little."""
        self.now += LOOK_S
        return self.now

    def machine(self, host: str) -> Machine:
        """Switch a machine on."""
        return self.add(Machine(self, host))

    def add(self, machine: Machine) -> Machine:
        """Let a machine take part."""
        self.machines.append(machine)
        self.wake(machine)
        return machine

    def kill(self, machine: Machine) -> None:
        """Nothing of the machine runs any more."""
        self.machines.remove(machine)
        machine.is_dead = True
        machine.wakes_at = NEVER
        self._graves.append(machine)
        if machine.is_listed:
            machine.is_listed = False
            self._ready.remove(machine)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let so much time pass; returns whether `until` held before, which ends it. Raises StandsStill."""
        end = self.now + seconds
        while not until():
            if self.now >= end or not self._step(end):
                return until()
        return True

    def wake(self, machine: Machine) -> None:
        """It may have something to do now."""
        if not machine.is_listed and not machine.is_dead:
            machine.is_listed = True
            self._ready.append(machine)

    def wake_at(self, machine: Machine, when: float) -> None:
        """It may have something to do then."""
        if when < machine.wakes_at:
            machine.wakes_at = when
            self._asked += 1
            heappush(self._wakings, (when, self._asked, machine))

    def _step(self, end: float) -> bool:
        """One turn of one machine, or the time until somebody has something to do; False at the end."""
        wakings, ready = self._wakings, self._ready
        while wakings and wakings[0][0] <= self.now:
            when, _, machine = heappop(wakings)
            if when == machine.wakes_at:
                machine.wakes_at = NEVER
                self.wake(machine)
        while ready:
            place = int(self.rng.random() * len(ready)) if len(ready) > 1 else 0
            machine = ready[place]
            if not machine._ready or machine._stands_still_until > self.now:
                when = machine.next_time(self.now)
                if when > self.now:
                    self._let_sleep(place, when)
                    continue
            machine.turn()
            self.now += TURN_S
            self.turns += 1
            if machine.is_listed and not machine._ready:
                when = machine.next_time(self.now)
                if when > self.now:
                    self._let_sleep(ready.index(machine), when)
            if machine.is_watched or self.now >= self.next_look:
                self.after_turn(machine)
            return True
        while wakings and wakings[0][0] != wakings[0][2].wakes_at:
            heappop(wakings)
        if not wakings:
            raise StandsStill(self._who_waits())
        self.now = min(wakings[0][0], end)
        return wakings[0][0] < end

    def _let_sleep(self, place: int, when: float) -> None:
        machine = self._ready.pop(place)
        machine.is_listed = False
        self.wake_at(machine, when)

    def _who_waits(self) -> str:
        return "\n".join(
            f"{each.host}: {task.get_coro()}"
            for each in self.machines
            for task in sorted(asyncio.all_tasks(each), key=asyncio.Task.get_name)
        )


class Machine(asyncio.BaseEventLoop):
    """The event loop of a simulated machine."""

    def __init__(self, simulation: Simulation, host: str) -> None:
        super().__init__()
        self.simulation = simulation
        self.host = host
        self.is_dead = False
        self.is_watched = False
        """Whether somebody looks at it after each of its turns."""
        self.is_listed = False
        """Whether it is among those that have something to do, or may have."""
        self.wakes_at = NEVER
        """When the simulation looks after it."""
        self.jobs_wait_s = 0.0
        """So much longer than usual, for an executor that is free."""
        self._stands_still_until = 0.0
        self._readers: dict[int, asyncio.Handle] = {}
        self._writers: dict[int, asyncio.Handle] = {}
        self.descriptors: dict[int, Descriptor] = {}
        """What may be waited on here, by number."""
        self.readable: dict[int, None] = {}
        """The numbers of those from which reading would not block."""
        self._thread_id = threading.get_ident()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap: when, in which order they were asked for, what."""
        self._asked = 0
        self._ready: Any
        self._timer_cancelled_count: int

    def __del__(self, *names: object) -> None:
        """It holds nothing of the real system: nobody has to close it."""

    # --- turns ---

    @property
    def stands_still_until(self) -> float:
        """Of a stopped process: time goes on without it."""
        return self._stands_still_until

    @stands_still_until.setter
    def stands_still_until(self, when: float) -> None:
        self._stands_still_until = when
        self.simulation.wake(self)

    def now_readable(self, number: int) -> None:
        """Reading from a descriptor would not block any more."""
        self.readable[number] = None
        self.simulation.wake(self)

    def now_writable(self) -> None:
        """Writing to some descriptor would not block any more."""
        if self._writers:
            self.simulation.wake(self)

    def next_time(self, now: float) -> float:
        """When there is something to do: now, or when the next timer is due."""
        if self._stands_still_until > now:
            return self._stands_still_until
        if self._ready:
            return now
        if self.readable and not self._readers.keys().isdisjoint(self.readable):
            return now
        for number in self._writers:
            if self.descriptors[number].is_writable:
                return now
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        return timers[0][0] if timers else NEVER

    def turn(self) -> None:
        """Run what is ready now, in order."""
        if self._timers and self._timers[0][0] <= self.simulation.now:
            self._take_due()
        if self.readable or self._writers:
            self._take_ready()
        ready = self._ready
        events._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            events._set_running_loop(None)

    def _take_due(self) -> None:
        timers, now = self._timers, self.simulation.now
        if self._timer_cancelled_count > max(CANCELLED_TIMERS, len(timers) // 2):
            timers[:] = [each for each in timers if not each[2].cancelled()]
            heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][0] <= now:
            handle = heappop(timers)[2]
            handle._scheduled = False  # type: ignore[attr-defined]
            if not handle._cancelled:
                self._ready.append(handle)

    def _take_ready(self) -> None:
        readers = self._readers
        self._ready.extend(readers[number] for number in self.readable if number in readers)
        for number, handle in self._writers.items():
            if self.descriptors[number].is_writable:
                self._ready.append(handle)

    # --- what asyncio asks of a loop ---

    def time(self) -> float:
        """The steady clock."""
        return self.simulation.now

    def create_task(self, coro: Any, **more: Any) -> asyncio.Task[Any]:
        """Begin a task; when the world ends with it nobody has to be told."""
        task = super().create_task(coro, **more)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return task

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Call back after a time."""
        return self.call_at(self.simulation.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Call back at a time; of two at the same time in the order in which they were asked for."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._asked += 1
        heappush(self._timers, (when, self._asked, handle))
        handle._scheduled = True  # type: ignore[attr-defined]
        if not self.is_listed and when < self.wakes_at:
            self.simulation.wake_at(self, when)
        return handle

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """Call back in the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self.is_listed:
            self.simulation.wake(self)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """There are no threads."""
        return self.call_soon(callback, *args, context=context)

    def add_reader(self, number: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """Call back whenever reading would not block."""
        self.remove_reader(number)
        self._readers[number] = asyncio.Handle(callback, args, self, None)
        self.simulation.wake(self)

    def remove_reader(self, number: int) -> bool:  # type: ignore[override]
        """Call back no more."""
        return _removed(self._readers, number)

    def add_writer(self, number: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """Call back whenever writing would not block."""
        self.remove_writer(number)
        self._writers[number] = asyncio.Handle(callback, args, self, None)
        self.simulation.wake(self)

    def remove_writer(self, number: int) -> bool:  # type: ignore[override]
        """Call back no more."""
        return _removed(self._writers, number)

    async def create_connection(self, make: Callable[[], Any], host: str, port: int, **tls: Any) -> Any:  # type: ignore[override]
        """Open a connection through the simulated network."""
        assert not tls, "the simulated network knows no TLS"
        assert self.simulation.connect is not None
        return await self.simulation.connect(self, make, host, port)

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Do the job here, all at once, after a drawn delay; what comes of it is known after another one."""
        if executor is not None and executor._shutdown:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = self.create_future()
        self.call_later(self.jobs_wait_s + self._delay(), self._work, executor, future, function, args)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

    # --- jobs ---

    def _delay(self) -> float:
        """Mostly short, now and then as long as a busy disk makes it."""
        rng = self.simulation.rng
        longest = 0.0005 if (kind := rng.random()) < 0.95 else 0.02 if kind < 0.997 else 0.5
        return rng.random() * longest

    def _work(self, executor: Any, future: asyncio.Future[Any], function: Callable[..., Any], args: Any) -> None:
        if future.cancelled():
            return
        if executor is not None and executor._shutdown:
            future.cancel()
            return
        try:
            result = function(*args)
        except BaseException as error:
            self.call_later(self._delay(), _fail, future, error)
        else:
            self.call_later(self._delay(), _succeed, future, result)

    def call_exception_handler(self, context: Mapping[str, Any]) -> None:
        """What nobody caught is told of by the machine's name."""
        super().call_exception_handler({**context, "machine": self.host})


def _removed(handles: dict[int, asyncio.Handle], number: int) -> bool:
    handle = handles.pop(number, None)
    if handle is None:
        return False
    handle.cancel()
    return True


def _succeed(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)

"""What the operating system is to a broker, played: clocks, chance, sockets, a thread that flushes, ZooKeeper's client.

All that production code reaches past its event loop stands in `take_over`. It is for a process of its own, to be
called before anything of kbroker is imported, as modules take `monotonic` by name. Until a simulation is given, time
stands still: what is noted of it when modules are loaded is the same for every process.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any

from tests.simulation.loop import EPOCH_S, STARTED_AT_S, Machine, Simulation
from tests.simulation.network import Network

_real_monotonic = time.monotonic
_real_gmtime = time.gmtime
_real_sendfile = os.sendfile


class Outside:
    """The one simulation of this process."""

    simulation: Simulation | None = None
    network: Network | None = None
    disks: Any = None
    """Of tests/simulation/disk.py."""


def begin(simulation: Simulation, network: Network) -> None:
    """From now on time and chance are the simulation's."""
    Outside.simulation, Outside.network = simulation, network
    random.seed(simulation.seed)


def take_over() -> None:
    """Put clocks and chance in the place of the real ones, then sockets and clients in the place of theirs."""
    assert time.monotonic is _real_monotonic, "once is enough"
    time.monotonic = monotonic
    time.perf_counter = monotonic
    time.time = wall
    time.monotonic_ns = lambda: int(monotonic() * 1e9)
    time.time_ns = lambda: int(wall() * 1e9)
    time.clock_gettime = lambda clock: monotonic()
    time.gmtime = lambda seconds=None: _real_gmtime(wall() if seconds is None else seconds)
    time.sleep = sleep  # type: ignore[assignment]
    os.urandom = random_bytes
    random._urandom = random_bytes  # type: ignore[attr-defined]
    os.sendfile = sendfile  # type: ignore[assignment]
    _replace_in_kbroker()


def _replace_in_kbroker() -> None:
    from kbroker.controller import zookeeper
    from kbroker.network import server
    from kbroker.segment import background_flush, log_loading
    from tests.simulation import disk
    from tests.simulation.zookeeper import Kazoo

    Outside.disks = disk.take_over(lambda: Outside.simulation)

    zookeeper.KazooClient = Kazoo  # type: ignore[attr-defined]
    server.open_socket = open_socket
    background_flush.threading = SimpleNamespace(Lock=threading.Lock, Thread=Job)  # type: ignore[assignment, attr-defined]
    log_loading.ThreadPoolExecutor = AtOnce  # type: ignore[assignment, attr-defined]


def monotonic() -> float:
    """The steady clock."""
    return STARTED_AT_S if Outside.simulation is None else Outside.simulation.look_at_clock()


def wall() -> float:
    """The clock on the wall."""
    return EPOCH_S + (STARTED_AT_S if Outside.simulation is None else Outside.simulation.now)


def sleep(seconds: float) -> None:
    """Whoever sleeps in a job holds up everybody: time goes on."""
    assert Outside.simulation is not None
    Outside.simulation.now += seconds


def random_bytes(size: int) -> bytes:
    """Chance from the seed."""
    return bytes(size) if Outside.simulation is None else Outside.simulation.rng.randbytes(size)


def sendfile(target: int, source: int, position: int, size: int) -> int:
    """Write a slice of a file to a socket."""
    if target >= 0 or Outside.network is None:
        return _real_sendfile(target, source, position, size)
    return Outside.network.sockets[target].send_file(source, position, size)


def open_socket(listener: Any, limits: Any) -> Any:
    """Listen on the simulated network, on the machine that runs now."""
    assert Outside.network is not None
    machine = asyncio.get_running_loop()
    assert isinstance(machine, Machine)
    return Outside.network.listen(machine, listener.host, listener.port)


class Job:
    """A thread that does one thing and ends: done by the running machine's loop a little later, or when waited for."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), **names: Any) -> None:
        self._target: Callable[[], None] | None = lambda: target(*args)

    def start(self) -> None:
        """Let it be done soon."""
        asyncio.get_running_loop().run_in_executor(None, self.join)

    def join(self) -> None:
        """Do it now, unless it was done."""
        target, self._target = self._target, None
        if target is not None:
            target()


class AtOnce(Executor):
    """A pool whose work is done by who hands it over."""

    def __init__(self, threads: int, name: str) -> None:
        """There are none."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **names: Any) -> Future[Any]:
        """Do it."""
        done: Future[Any] = Future()
        try:
            done.set_result(function(*args, **names))
        except BaseException as error:
            done.set_exception(error)
        return done

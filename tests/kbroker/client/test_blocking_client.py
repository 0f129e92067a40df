import asyncio
import gc
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbroker.client.blocking_client import Client, call
from kbroker.client.errors import ClientClosed
from tests.fixtures.threads import client_threads


class Nothing:
    """A client that only closes."""

    async def close(self) -> None:
        return None


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client(Nothing)
    yield made
    made.close()


def test_coroutines_run_in_the_background(client: Client) -> None:
    assert client.run(call(threading.current_thread)) is not threading.current_thread()
    client.close()
    with pytest.raises(ClientClosed):
        client.run(call(threading.current_thread))


def test_functions_run_in_the_thread_that_waits_and_may_wait_themselves(client: Client) -> None:
    def inner() -> int:
        assert threading.current_thread() is threading.main_thread()
        return client.run(call(lambda: 7))

    async def outer() -> int:
        return await client._callers.call(inner)

    assert client.run(outer()) == 7


def test_what_a_function_raises_comes_back(client: Client) -> None:
    def broken() -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        client.run(client._callers.call(broken))


def test_a_function_that_returns_when_the_client_is_closed_is_told_that(client: Client) -> None:
    has_begun, is_closed = threading.Event(), threading.Event()

    def slow() -> bool:
        has_begun.set()
        return is_closed.wait(20)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: client.run(client._callers.call(slow)))
        assert has_begun.wait(20)
        client.close()
        is_closed.set()
        assert isinstance(waiting.exception(20), ClientClosed)


def test_a_function_nobody_waited_for_runs_with_the_next_call(client: Client) -> None:
    async def leave_behind() -> "asyncio.Task[str]":
        return asyncio.create_task(client._callers.call(lambda: threading.current_thread().name))

    task = client.run(leave_behind())
    time.sleep(0)

    async def collect() -> str:
        return await task

    assert client.run(collect()) == threading.main_thread().name


def test_threads_that_wait_at_the_same_time_all_get_their_answers(client: Client) -> None:
    async def wait_for(number: int) -> int:
        await asyncio.sleep(number % 5 * 0.001)
        return number

    with ThreadPoolExecutor(8) as threads:
        futures = [threads.submit(client.run, wait_for(number)) for number in range(500)]
        assert [future.result(30) for future in futures] == list(range(500))


def test_whoever_waits_when_the_client_is_closed_is_told(client: Client) -> None:
    waits = threading.Event()

    async def wait() -> None:
        waits.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(client.run, wait())
        assert waits.wait(30)
        client.close()
        with pytest.raises(ClientClosed, match="closed meanwhile"):
            future.result(30)


def test_the_clients_own_thread_is_told_not_to_wait_for_itself(client: Client) -> None:
    async def wrong() -> int:
        return client.run(call(lambda: 7))

    with pytest.raises(RuntimeError, match="waits for that thread for ever"):
        client.run(wrong())


def test_sys_exit_on_the_clients_own_thread_is_raised_where_it_was_waited_for_and_ends_nothing(client: Client) -> None:
    with pytest.raises(SystemExit):
        client.run(call(lambda: sys.exit(3)))
    client._loop.call_soon_threadsafe(sys.exit)
    assert client.run(call(lambda: 7)) == 7


def test_a_client_that_is_told_to_end_while_something_calls_sys_exit_ends(client: Client) -> None:
    client.run(call(lambda: client._loop.call_later(0.05, time.sleep, 0.3)))
    time.sleep(0.1)
    client._loop.call_soon_threadsafe(client._end_of_loop.set_result, None)
    client._loop.call_soon_threadsafe(sys.exit)
    client._closed = True
    client._thread.join(30)
    assert not client._thread.is_alive()


class Slow:
    """A client that takes its time to close."""

    def __init__(self) -> None:
        self.closing = threading.Event()
        self.may_close = asyncio.Event()
        self.has_closed = False

    async def close(self) -> None:
        if self.closing.is_set():
            return
        self.closing.set()
        await self.may_close.wait()
        self.has_closed = True


def test_who_closes_while_another_thread_does_waits_for_the_end_of_it() -> None:
    client = Client(Slow)
    inner: Slow = client._client
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(client.close)
        assert inner.closing.wait(30)
        second = threads.submit(client.close)
        with pytest.raises(TimeoutError):
            second.result(0.2)
        client._loop.call_soon_threadsafe(inner.may_close.set)
        first.result(30)
        second.result(30)
    assert inner.has_closed


def test_a_client_that_is_collected_warns_is_closed_and_ends_its_thread() -> None:
    client = Client(Slow)
    inner: Slow = client._client
    thread = client._thread
    client._loop.call_soon_threadsafe(inner.may_close.set)
    held = [client]
    del client
    with pytest.warns(ResourceWarning, match=r"a kbroker\.client\.blocking_client\.Client was never closed"):
        held.clear()
    thread.join(30)
    assert (thread.is_alive(), inner.has_closed) == (False, True)


def test_a_client_that_could_not_be_made_leaves_neither_a_thread_nor_a_warning() -> None:
    before = client_threads()
    with pytest.raises(ZeroDivisionError):
        Client(lambda: 1 // 0)
    gc.collect()
    assert client_threads() <= before

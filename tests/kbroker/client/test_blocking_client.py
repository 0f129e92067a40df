import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from kbroker.client.blocking_client import Client, call
from kbroker.client.errors import ClientClosed


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
        return await client._in_waiting_thread(inner)

    assert client.run(outer()) == 7


def test_what_a_function_raises_comes_back(client: Client) -> None:
    def broken() -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        client.run(client._in_waiting_thread(broken))


def test_a_function_nobody_waited_for_runs_with_the_next_call(client: Client) -> None:
    async def leave_behind() -> "asyncio.Task[str]":
        return asyncio.create_task(client._in_waiting_thread(lambda: threading.current_thread().name))

    task = client.run(leave_behind())
    time.sleep(0)

    async def collect() -> str:
        return await task

    assert client.run(collect()) == threading.main_thread().name

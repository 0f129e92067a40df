import asyncio
import threading
from concurrent.futures import Future

from kbroker.client.waiting_threads import WaitingThreads


def test_what_a_loop_asks_for_is_done_by_the_thread_that_waits() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    waiting = WaitingThreads(loop)

    async def ask() -> threading.Thread:
        return await waiting.call(threading.current_thread)

    try:
        future: Future[threading.Thread] = asyncio.run_coroutine_threadsafe(ask(), loop)
        waiting.wait(future)
        assert future.result(0) is threading.current_thread()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

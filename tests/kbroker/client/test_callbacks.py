"""What callbacks raise ends nothing here, and still ends an asyncio program that wants it."""

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbroker import Admin, Consumer, Producer
from kbroker.client.delivery import Batch
from kbroker.client.table_delivery import RowRange, TableDelivery
from kbroker.dev.broker_process import BrokerProcess

LIMIT_S = 30.0


def leave(*arguments: object) -> None:
    sys.exit(3)


def interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


def give_up(*arguments: object) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("is_table", [False, True])
def test_sys_exit_in_a_callback_ends_an_asyncio_program_after_all_others_have_heard(is_table: bool) -> None:
    batch, heard = Batch("t", 0, None, 0.0, 1.0), []
    table = TableDelivery("t")
    table.add(batch, RowRange(0, 0, 0, 1))
    table.seal()
    add: Callable[[Callable[[], None]], None] = table._when_done if is_table else batch.when_done
    add(leave)
    add(lambda: heard.append("another"))

    async def program() -> None:
        batch.finish(7)
        heard.append("the sender")
        await asyncio.sleep(LIMIT_S)

    with pytest.raises(SystemExit) as caught:
        asyncio.run(program())
    assert (caught.value.code, heard) == (3, ["another", "the sender"])


def test_the_second_sys_exit_of_a_loop_does_not_end_its_cleaning_up() -> None:
    cleaned_up: list[int] = []

    async def program() -> None:
        try:
            for _ in range(3):
                batch = Batch("t", 0, None, 0.0, 1.0)
                batch.when_done(leave)
                batch.finish(7)
            await asyncio.sleep(LIMIT_S)
        finally:
            batch = Batch("t", 0, None, 0.0, 1.0)
            batch.when_done(leave)
            batch.finish(7)
            await asyncio.sleep(0.01)
            cleaned_up.append(1)

    with pytest.raises(SystemExit):
        asyncio.run(program())
    assert cleaned_up


def test_in_a_thread_without_a_loop_an_interrupt_is_the_threads_own() -> None:
    batch = Batch("t", 0, None, 0.0, 1.0)
    batch.when_done(interrupt)
    with pytest.raises(KeyboardInterrupt):
        batch.finish(7)


@pytest.mark.parametrize("how", [leave, interrupt, give_up])
def test_whatever_a_callback_raises_a_blocking_client_goes_on(
    broker: BrokerProcess, topic_name: str, how: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name, 1)
    with Producer(broker.bootstrap) as producer:
        sent = [producer.send(topic_name, b"x", on_delivery=how) for _ in range(3)]
        assert [delivery.result(LIMIT_S).offset for delivery in sent] == [0, 1, 2]
        assert producer.send(topic_name, b"y").result(LIMIT_S).offset == 3
        producer.flush(LIMIT_S)
    with Consumer(broker.bootstrap, group_id=topic_name, enable_auto_commit=False) as consumer:
        consumer.assign([(topic_name, 0)])
        called = threading.Event()

        def committed_so_far(*arguments: object) -> None:
            called.set()
            how()

        consumer.commit_async({(topic_name, 0): 2}, committed_so_far)
        assert called.wait(LIMIT_S)
        with ThreadPoolExecutor(1) as threads:
            committed = threads.submit(consumer.committed, [(topic_name, 0)]).result(LIMIT_S)
        assert [offset.offset for offset in committed.values() if offset] == [2]
    assert caplog.text.count(how.__name__) >= 4, "each is logged with its traceback"

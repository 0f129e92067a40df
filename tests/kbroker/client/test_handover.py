import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kbroker import Admin, ClientClosed, Consumer, Producer
from kbroker.client.handover import Handover
from kbroker.dev.broker_process import BrokerProcess


def interrupt_twice(consumer: Consumer, is_waiting: bool) -> None:
    """In the next call, and when that is given up."""
    run = consumer.run

    def interrupted(coroutine: Coroutine[Any, Any, Any]) -> None:
        del consumer.run
        if is_waiting:  # it has begun, and nobody has what would end it
            asyncio.run_coroutine_threadsafe(coroutine, consumer._loop)
            run(asyncio.sleep(0))
        else:
            run(coroutine)
        raise KeyboardInterrupt

    def interrupted_again(function: Callable[[], None]) -> None:
        del consumer._tell
        raise KeyboardInterrupt

    consumer.run = interrupted  # type: ignore[method-assign, assignment]
    consumer._tell = interrupted_again  # type: ignore[method-assign]


@pytest.mark.parametrize("is_waiting", [False, True], ids=["has records", "waits"])
def test_a_call_that_is_interrupted_while_it_is_given_up_keeps_no_records(
    broker: BrokerProcess, topic_name: str, is_waiting: bool
) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic_name)
    with (
        Consumer(broker.bootstrap, auto_offset_reset="earliest", group_id=topic_name) as consumer,
        Producer(broker.bootstrap) as producer,
    ):

        def send() -> None:
            producer.send(topic_name, b"x")
            producer.flush()

        consumer.subscribe([topic_name])
        send()
        assert [record.offset for record in consumer.poll(20)] == [0]
        interrupt_twice(consumer, is_waiting)
        if not is_waiting:
            send()
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(30)
        if is_waiting:
            send()
        assert [record.offset for record in consumer.poll(20)] == [1]


def test_a_call_that_is_given_up_before_it_has_begun_never_begins() -> None:
    begun: list[bool] = []

    async def call() -> None:
        begun.append(True)

    with Consumer("127.0.0.1:1") as consumer:
        handover = Handover(consumer._client.reader, call)
        handover.give_up()
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(handover.run())
    assert not begun


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_call_of_a_closed_consumer_leaves_nothing_behind() -> None:
    consumer = Consumer("127.0.0.1:1")
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.poll(1)
    gc.collect()  # a coroutine that was never awaited would warn
    assert not consumer._interrupted

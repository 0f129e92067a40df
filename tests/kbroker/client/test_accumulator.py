import threading

import pytest

from kbroker.client.accumulator import Accumulator
from kbroker.client.client_config import ProducerConfig
from kbroker.client.delivery import Batch
from kbroker.client.errors import ClientClosed, MessageTooLargeError


def test_records_of_a_partition_share_a_batch_until_it_is_full() -> None:
    woken: list[None] = []
    config = ProducerConfig.read({"bootstrap": "a:1", "batch_size": 1000})
    accumulator = Accumulator(config, lambda: woken.append(None))
    assert accumulator.append("t", b"x", None, None, None, ()) is None  # the topic is not known yet
    accumulator.learn("t", 2, [0, 1])
    for _ in range(20):
        assert accumulator.append("t", b"x" * 100, None, 1, 1, ()) is not None
    batches = accumulator.unfinished()
    assert [batch.count for batch in batches][:-1] == [8, 8]
    assert accumulator.used == sum(batch.size for batch in batches)
    for batch in batches:
        batch.finish(7)
        accumulator.release(batch)
    assert accumulator.used == 0


def test_callbacks_come_once_even_when_one_raises() -> None:
    accumulator = Accumulator(ProducerConfig.read({"bootstrap": "a:1"}), lambda: None)
    accumulator.learn("t", 1, [0])
    seen: list[object] = []
    accumulator.append("t", b"x", None, 0, 1, (), lambda metadata, error: 1 / 0)  # type: ignore[arg-type]
    accumulator.append("t", b"x", None, 0, 1, (), lambda metadata, error: seen.append(metadata))
    accumulator.unfinished()[0].finish(40)
    assert [getattr(metadata, "offset", None) for metadata in seen] == [41]


def test_waiting_for_fewer_bytes_ends_when_there_are_or_when_the_time_is_over() -> None:
    accumulator = Accumulator(ProducerConfig.read({"bootstrap": "a:1"}), lambda: None)
    accumulator.learn("t", 1, [0])
    accumulator.append("t", b"x" * 100, None, 0, 1, ())
    accumulator.wait_below(100, 0.01)
    assert accumulator.used > 100
    waiting = threading.Thread(target=accumulator.wait_below, args=(100, 60))
    waiting.start()
    (batch,) = accumulator.unfinished()
    batch.finish(7)
    accumulator.release(batch)
    waiting.join(30)
    assert not waiting.is_alive()
    assert not accumulator._awaited_levels, "nobody waits any more: nobody is woken"


def test_a_closed_accumulator_takes_nothing_and_says_why() -> None:
    accumulator = Accumulator(ProducerConfig.read({"bootstrap": "a:1"}), lambda: None)
    accumulator.learn("t", 1, [0])
    accumulator.close("it has failed", ZeroDivisionError("mine"))
    accumulator.close("the producer is closed")
    for _ in range(2):
        with pytest.raises(ClientClosed, match="it has failed") as raised:
            accumulator.append("t", b"x", None, 0, 1, ())
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert len(raised.traceback) < 4, "each caller has an error of its own"
    with pytest.raises(ClientClosed, match="it has failed"):
        accumulator.queue_built([Batch("t", 0, None, 0.0, 1.0)])
    assert accumulator.unfinished() == []


def test_a_record_that_is_too_large_is_told_with_what_to_do() -> None:
    accumulator = Accumulator(ProducerConfig.read({"bootstrap": "a:1", "max_request_size": 500}), lambda: None)
    accumulator.learn("t", 1, [0])
    with pytest.raises(MessageTooLargeError, match=r"t-0: a record of about \d+ bytes, max_request_size is 500: make"):
        accumulator.append("t", b"x" * 1000, None, 0, 1, ())


@pytest.mark.parametrize("is_first", [True, False])
def test_a_record_of_wrong_types_is_explained_and_changes_nothing(is_first: bool) -> None:
    accumulator = Accumulator(ProducerConfig.read({"bootstrap": "a:1"}), lambda: None)
    accumulator.learn("t", 1, [0])
    if not is_first:
        accumulator.append("t", b"x", None, None, None, ())
    used = accumulator.used
    with pytest.raises(TypeError, match="a value is bytes or None, not the int 5"):
        accumulator.append("t", 5, None, None, None, ())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a key is bytes or None, not the str 'k'"):
        accumulator.append("t", b"x", "k", None, None, ())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"headers are .*: list\(headers.items\(\)\)"):
        accumulator.append("t", b"x", None, None, None, {"a": b"b"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timestamp is milliseconds since 1970, or -1 for none, not -5"):
        accumulator.append("t", b"x", None, None, -5, ())
    assert accumulator.used == used

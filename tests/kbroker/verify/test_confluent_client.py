"""Tests for kbroker.verify.confluent_client against a broker; what both libraries must do is asked of both."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from kbroker.dev.broker_process import BrokerProcess
from kbroker.verify.clients import PATIENT, ClientProblem, Incoming, Library, Limits, Outgoing, Reader, make_library
from kbroker.verify.confluent_client import ConfluentLibrary, ConfluentSender

LIBRARIES = ("confluent", "kbroker")
PATIENCE_S = 120.0


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, broker: BrokerProcess) -> Library:
    return make_library(request.param, broker.bootstrap, {}, PATIENT)


def read_to_the_end(reader: Reader, keys: list[str]) -> list[Incoming]:
    """Read until the markers at the end have been passed."""
    ends = reader.ends(keys)
    found: list[Incoming] = []
    deadline = time.monotonic() + PATIENCE_S
    while any(reader.reached().get(key, 0) < ends[key] for key in keys):
        assert time.monotonic() < deadline, (reader.reached(), ends)
        found += reader.poll(0.1)
    return found


@pytest.mark.slow
def test_records_are_sent_read_and_committed(library: Library, topic_name: str) -> None:
    library.create_topic(topic_name, 2, 1, {"retention.ms": "-1"})
    assert library.topics()[topic_name] == 2
    assert library.brokers() == 1
    keys = [f"{topic_name}:0", f"{topic_name}:1"]
    sender = library.sender()
    outcomes = sender.send([Outgoing(keys[0], 5, 7), Outgoing(keys[0], 6), Outgoing(keys[1], 8)])
    assert [each.offset for each in outcomes] == [0, 1, 0]
    sender.crash()

    reader = library.reader(f"{topic_name}-group")
    reader.assign(dict.fromkeys(keys))
    found = {(each.key, each.offset): (each.value, each.record_key) for each in read_to_the_end(reader, keys)}
    assert found == {(keys[0], 0): (b"5", b"7"), (keys[0], 1): (b"6", None), (keys[1], 0): (b"8", None)}
    reader.commit({keys[0]: 2})
    assert reader.committed(keys) == {keys[0]: 2, keys[1]: -1}
    reader.assign({keys[0]: 1})
    assert [each.offset for each in read_to_the_end(reader, keys[:1])] == [1]
    reader.crash()
    library.delete_topics([topic_name])


@pytest.mark.slow
def test_only_committed_transactions_are_read_and_markers_are_passed(library: Library, topic_name: str) -> None:
    library.create_topic(topic_name, 1, 1, {})
    key = f"{topic_name}:0"
    sender = library.sender(f"{topic_name}-id")
    for value, end in ((1, sender.commit), (2, sender.abort), (3, sender.commit), (4, sender.abort)):
        sender.begin()
        (outcome,) = sender.send([Outgoing(key, value)])
        assert outcome.error is None
        end()
    sender.crash()
    reader = library.reader()
    reader.assign({key: None})
    assert [each.value for each in read_to_the_end(reader, [key])] == [b"1", b"3"]
    assert reader.reached()[key] == 8
    sender = library.sender(f"{topic_name}-id")
    sender.begin()
    sender.send([Outgoing(key, 5), Outgoing(key, 6)])
    assert (reader.ends([key]), reader.stable_ends([key])) == ({key: 10}, {key: 8})
    sender.abort()
    sender.crash()
    reader.crash()


def test_a_member_tells_what_it_was_given(library: Library, topic_name: str) -> None:
    library.create_topic(topic_name, 2, 1, {})
    keys = [f"{topic_name}:0", f"{topic_name}:1"]
    sender = library.sender()
    sender.send([Outgoing(key, 1) for key in keys])
    sender.crash()
    reader = library.reader(f"{topic_name}-group")
    reader.subscribe([topic_name])
    found: list[Incoming] = []
    changed: set[str] = set()
    deadline = time.monotonic() + PATIENCE_S
    while {each.key for each in found} != set(keys):  # who was thrown out meanwhile reads again
        assert time.monotonic() < deadline, found
        found += reader.poll(0.2)
        changed.update(reader.rebalances())
    assert changed == set(keys)
    reader.crash()


class GaveUp:
    """A producer of librdkafka's after a fatal error, as of a sequence number that was lost."""

    def produce(self, *record: object, **more: object) -> None:
        """Take it."""

    def poll(self, timeout: float) -> int:
        """Give up."""
        raise KafkaException(
            KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence desynchronization", fatal=True)
        )

    def purge(self, blocking: bool) -> None:
        """Nothing is left."""


def test_a_producer_that_gives_up_for_good_leaves_its_records_unknown_and_its_worker_alive() -> None:
    sender = ConfluentSender({"bootstrap.servers": "127.0.0.1:1"}, None)
    sender._producer = GaveUp()  # type: ignore[assignment]
    (outcome,) = sender.send([Outgoing("orders:0", 1)])
    assert outcome.offset is None
    assert not outcome.is_definite
    assert "sequence desynchronization" in str(outcome.error)
    sender.crash()


def test_a_change_of_topics_that_nobody_answers_is_a_problem_and_the_library_goes_on() -> None:
    library = ConfluentLibrary("127.0.0.1:1", {}, Limits(request=0.01))
    unanswered: Future[None] = Future()
    with pytest.raises(ClientProblem, match="nobody answered in time") as problem:
        library._wait({"orders": unanswered})
    assert not problem.value.ends_process

"""A thousand connections, silent ones, slow readers: whoever asks is served, and nobody's slowness costs the others."""

import contextlib
import os
import socket
import time

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.headers import decode_response
from kbroker.protocol.messages.fetch import FetchResponse
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.produce import ProduceResponse
from kbroker.protocol.records.batch import split_batches
from tests.fixtures.brokers import MakeBroker
from tests.system.wire import (
    FETCH_VERSION,
    Peer,
    bystander,
    create_topic,
    fetch_request,
    one_batch,
    produce,
    produce_request,
    request_bytes,
    resident_bytes,
)

pytestmark = pytest.mark.slow

CONNECTIONS = 1000
SILENT = 200
STEP_S = 30.0


def fill(broker: BrokerProcess, topic: str, megabytes: int) -> None:
    with Peer(broker, 30) as peer:
        for number in range(megabytes):
            assert not produce(peer, topic, one_batch(b"%06d" % number + bytes(900_000))).error_code


def test_a_thousand_connections_of_which_two_hundred_are_silent_are_all_served(
    make_broker: MakeBroker, topic_name: str
) -> None:
    broker = make_broker()
    create_topic(broker, topic_name, 4)
    before = resident_bytes(broker.pid)
    with bystander(broker, topic_name), contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(broker, 20)) for _ in range(CONNECTIONS)]
        silent, speaking = peers[:SILENT], peers[SILENT:]
        for round_ in range(2):
            for number, peer in enumerate(speaking):
                peer.send(request_bytes(produce_request(topic_name, one_batch(b"%d" % number), number % 4), 9, number))
            offsets = set()
            for number, peer in enumerate(speaking):
                answer = peer.receive()
                assert answer is not None, number
                correlation_id, response = decode_response(answer, ProduceResponse, 9)
                partition = response.responses[0].partition_responses[0]
                assert (correlation_id, partition.error_code, partition.index) == (number, 0, number % 4), round_
                offsets.add((partition.index, partition.base_offset))
            assert len(offsets) == len(speaking)
        assert not any(peer.is_closed(0.001) for peer in silent[:20])
        silent[0].socket.settimeout(20)
        assert silent[0].ask(MetadataRequest(topics=[]), 12).controller_id == 1
        assert resident_bytes(broker.pid) - before < 64 << 20
        assert len(list_descriptors(broker)) >= CONNECTIONS
    deadline = time.monotonic() + STEP_S
    while len(list_descriptors(broker)) > 100 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(list_descriptors(broker)) < 100


def list_descriptors(broker: BrokerProcess) -> list[str]:
    return os.listdir(f"/proc/{broker.pid}/fd")


def test_readers_of_a_byte_a_second_hold_up_nobody_and_pin_no_memory(make_broker: MakeBroker, topic_name: str) -> None:
    broker = make_broker()
    create_topic(broker, topic_name, 1)
    create_topic(broker, f"{topic_name}-quiet")
    fill(broker, topic_name, 40)
    wanted = request_bytes(fetch_request(topic_name, 0, max_bytes=40 << 20), FETCH_VERSION)
    before = resident_bytes(broker.pid)
    with bystander(broker, f"{topic_name}-quiet"), contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Peer(broker, 30)) for _ in range(50)]
        for peer in slow:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.send(wanted * 20)
        for _ in range(3):
            for peer in slow:
                assert len(peer.socket.recv(1)) == 1
            time.sleep(1)
        assert resident_bytes(broker.pid) - before < 32 << 20
        with Peer(broker, 30) as fast:
            fast.send(wanted)
            answer = fast.receive()
            assert answer is not None
            response = decode_response(answer, FetchResponse, FETCH_VERSION)[1]
            assert len(split_batches(response.responses[0].partitions[0].records)) == 40


def test_a_reader_that_stops_reading_is_closed_as_idle(make_broker: MakeBroker, topic_name: str) -> None:
    broker = make_broker(properties={"connections.max.idle.ms": "1500"})
    create_topic(broker, topic_name)
    fill(broker, topic_name, 20)
    connections = len(list_descriptors(broker))
    with Peer(broker, 30) as stuck:
        stuck.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.send(request_bytes(fetch_request(topic_name, 0, max_bytes=40 << 20), FETCH_VERSION))
        deadline = time.monotonic() + 15
        while "idle for more than" not in broker.log_tail(50) and len(list_descriptors(broker)) > connections:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_idle_connections_are_closed_and_busy_ones_are_not(make_broker: MakeBroker, topic_name: str) -> None:
    broker = make_broker(properties={"connections.max.idle.ms": "6500"})  # nobody stands still for so long
    create_topic(broker, topic_name)
    with bystander(broker, topic_name), Peer(broker, 30) as idle, Peer(broker, 30) as polling:
        for _ in range(2):
            polling.send(request_bytes(fetch_request(topic_name, 1_000_000, max_wait_ms=100), FETCH_VERSION))
            assert polling.receive() is not None
            waiting = fetch_request(topic_name, 0, max_wait_ms=7000)
            waiting.min_bytes = 1 << 30
            polling.send(request_bytes(waiting, FETCH_VERSION))
            assert polling.receive() is not None
        assert idle.is_closed()

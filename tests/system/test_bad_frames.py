"""Bytes that are no requests, sent to a real broker: it ends the connection, says why, and serves all others."""

import contextlib
import os
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol import primitives
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.schema import schema_of
from tests.fixtures.brokers import MakeBroker
from tests.system.wire import (
    Peer,
    bystander,
    create_topic,
    frame,
    one_batch,
    produce,
    produce_request,
    request_bytes,
    resident_bytes,
)

REQUEST_MAX_BYTES = 104_857_600
MOST_GROWTH = 48 << 20
"""A broker's memory may grow by this much under any of these attacks, each of which announces gigabytes."""

BETWEEN_BROKERS = {4, 5, 6, 7, 56, 67}
"""LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, AlterPartition, AllocateProducerIds: a peer that may
send these may also, rightly, make the broker follow a newer controller."""

MAY_WAIT = {1, 11, 19, 20, 37}
"""Fetch, JoinGroup, CreateTopics, DeleteTopics, CreatePartitions: their timeout is one of the fields that change."""


@pytest.fixture
def served(broker: BrokerProcess, topic_name: str) -> Iterator[BrokerProcess]:
    """The session's broker, with somebody on it who must be served all the while; its memory must not balloon."""
    create_topic(broker, topic_name)
    with bystander(broker, topic_name):
        before = resident_bytes(broker.pid)
        log_size = broker.log_file.stat().st_size
        yield broker
        time.sleep(0.1)
        assert resident_bytes(broker.pid) - before < MOST_GROWTH
    with broker.log_file.open(encoding="utf-8", errors="replace") as log:
        log.seek(log_size)
        assert "Traceback" not in log.read()


def new_lines(broker: BrokerProcess, size_before: int) -> list[str]:
    with broker.log_file.open("rb") as log:
        log.seek(size_before)
        return log.read().decode(errors="replace").splitlines()


@pytest.mark.parametrize(
    ("first_bytes", "said"),
    [
        (struct.pack(">i", REQUEST_MAX_BYTES + 1), "more than socket.request.max.bytes"),
        (struct.pack(">i", (1 << 31) - 1), "more than socket.request.max.bytes"),
        (struct.pack(">i", -1), "negative size -1"),
        (struct.pack(">i", -(1 << 31)), "negative size"),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "socket.request.max.bytes"),
    ],
)
def test_a_frame_that_cannot_be_is_refused_with_one_line(served: BrokerProcess, first_bytes: bytes, said: str) -> None:
    before = served.log_file.stat().st_size
    with Peer(served) as peer:
        peer.send(first_bytes)
        assert peer.is_closed()
        address = "{}:{}".format(*peer.socket.getsockname())
    lines = [line for line in new_lines(served, before) if address in line]
    assert len(lines) == 1
    assert said in lines[0]


def test_a_tls_client_on_a_plain_port_is_told_so_in_the_log(served: BrokerProcess) -> None:
    before = served.log_file.stat().st_size
    context = ssl.create_default_context()
    plain = socket.create_connection(("127.0.0.1", served.port), 5)
    with plain, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(plain, server_hostname="localhost")
    assert [line for line in new_lines(served, before) if "speaks TLS, but this listener is PLAINTEXT" in line]


def test_random_bytes_after_connect_end_that_connection(served: BrokerProcess) -> None:
    for _ in range(100):
        with Peer(served) as peer:
            peer.send(b"\x00\x00" + os.urandom(300))
            peer.socket.shutdown(socket.SHUT_WR)
            peer.receive()


@pytest.mark.slow
def test_many_announced_huge_frames_take_no_memory(served: BrokerProcess) -> None:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(served)) for _ in range(200)]
        before = resident_bytes(served.pid)
        for peer in peers:
            peer.send(struct.pack(">i", REQUEST_MAX_BYTES) + b"\x00\x00\x00\x09" + bytes(1000))
        time.sleep(0.5)
        assert resident_bytes(served.pid) - before < MOST_GROWTH
        assert not peers[0].is_closed(0.1)


@pytest.mark.slow
def test_half_a_frame_then_silence_is_closed_as_idle_while_others_are_served(
    make_broker: MakeBroker, topic_name: str
) -> None:
    broker = make_broker(properties={"connections.max.idle.ms": "1000"})
    create_topic(broker, topic_name)
    whole = request_bytes(produce_request(topic_name, one_batch(b"x" * 5000)), 9)
    with bystander(broker, topic_name), contextlib.ExitStack() as stack:
        begun = time.monotonic()
        peers = [stack.enter_context(Peer(broker)) for _ in range(20)]
        for number, peer in enumerate(peers):
            peer.send(whole[: 2 + number * 150])
        assert all(peer.is_closed(20) for peer in peers)
        assert time.monotonic() - begun > 0.5


def test_an_unknown_api_key_or_version_ends_the_connection_only_of_who_asked(served: BrokerProcess) -> None:
    for key, version in [(-1, 0), (74, 0), (999, 3), (32767, 0), (0, 12), (1, 3), (3, 13), (3, -1), (36, 9)]:
        with Peer(served) as peer:
            peer.send(frame(struct.pack(">hhih", key, version, 7, -1) + bytes(20)))
            assert peer.is_closed(), (key, version)


def test_api_versions_of_the_future_is_answered_in_version_0(served: BrokerProcess) -> None:
    with Peer(served) as peer:
        for version in (5, 99, 32767):
            peer.send(frame(struct.pack(">hhih", 18, version, version, -1) + bytes(20)))
            answer = peer.receive()
            assert answer is not None
            assert struct.unpack_from(">ihi", answer) == (version, 35, 1)
        assert not peer.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3).error_code


# -- lengths and counts inside a frame ------------------------------------------------------------------------------

LIES = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\x0f", b"\x00\xff\xff\xff")
"""-1, the largest, the smallest, the largest as a varint, 16 million."""

CONTENTS: dict[int, Any] = {
    primitives.BOOL: False,
    primitives.STRING: "lies",
    primitives.BYTES: b"12345678",
    primitives.RECORDS: bytes(one_batch()),
    primitives.UUID: bytes(16),
    primitives.ERROR: ErrorCode.NONE,
}
"""One value of each kind; 1 for numbers."""


def served_apis(broker: BrokerProcess) -> list[tuple[int, int, int]]:
    with Peer(broker) as peer:
        answer = peer.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    return [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys]


def filled(struct_type: Any, version: int) -> Any:
    """A message with one element in every array, and something in every text and field of bytes."""
    values: dict[str, Any] = {}
    for field in schema_of(struct_type).fields:
        if version not in field.versions:
            continue
        if field.struct is not None:
            one = filled(field.struct, version)
        elif field.name in ("timeout_ms", "max_wait_ms"):
            one = 100
        else:
            one = CONTENTS.get(field.kind, 1)
        values[field.name] = [one] if field.array else one
    return struct_type(**values)


def lies(whole: bytes, key: int, at_each_place: int) -> Iterator[bytes]:
    """The request cut at every byte, and with lies, so many of them, wherever a length or a count may stand."""
    body = whole[4:]
    for cut in range(len(body)):
        yield frame(body[:cut])
    if key in BETWEEN_BROKERS:
        return
    for place in range(8, len(body)):
        for turn in range(at_each_place):
            lie = LIES[(place + turn) % len(LIES)]
            yield frame(body[:place] + lie[: len(body) - place] + body[place + 4 :])


class Answers:
    """Many connections at once, each with one request; which of them were answered, closed or left waiting."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.answered = 0
        self.closed = 0

    def send_all(self, requests: list[bytes], wait: float) -> list[bytes]:
        """Returns the requests that got neither an answer nor an end within `wait` seconds."""
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
            for data in requests:
                peer = stack.enter_context(Peer(self.broker))
                peer.send(data)
                selector.register(peer.socket, selectors.EVENT_READ, data)
            deadline = time.monotonic() + wait
            while selector.get_map() and time.monotonic() < deadline:
                for ready, _ in selector.select(0.1):
                    self._count(ready.fileobj)
                    selector.unregister(ready.fileobj)
            return [ready.data for ready in selector.get_map().values()]

    def _count(self, connection: Any) -> None:
        try:
            data = connection.recv(1 << 16)
        except ConnectionError:
            data = b""
        if data:
            self.answered += 1
        else:
            self.closed += 1


@pytest.mark.parametrize(
    "at_each_place",
    [pytest.param(1, marks=pytest.mark.slow), pytest.param(len(LIES), marks=pytest.mark.compat)],
    ids=["one at a place", "all"],
)
@pytest.mark.parametrize("newest", [False, True], ids=["oldest versions", "newest versions"])
def test_no_lie_about_a_length_or_a_count_hurts_the_broker(
    make_broker: MakeBroker, topic_name: str, newest: bool, at_each_place: int
) -> None:
    broker = make_broker()
    create_topic(broker, topic_name)
    answers = Answers(broker)
    before = resident_bytes(broker.pid)
    with bystander(broker, topic_name):
        for key, oldest_version, newest_version in served_apis(broker):
            version = newest_version if newest else oldest_version
            message = filled(API_BY_KEY[key].request, version)
            requests = list(lies(request_bytes(message, version), key, at_each_place))
            for start in range(0, len(requests), 200):
                waiting = answers.send_all(requests[start : start + 200], 1.0 if key in MAY_WAIT else 60.0)
                assert not waiting or key in MAY_WAIT, (key, version, waiting[0].hex())
    assert answers.closed > 1000
    assert answers.answered > 300
    assert resident_bytes(broker.pid) - before < 2 * MOST_GROWTH
    log = broker.log_file.read_text(errors="replace")
    assert "Traceback" not in log, log[log.index("Traceback") - 2000 :][:6000]
    with Peer(broker) as peer:
        assert not produce(peer, topic_name, one_batch()).error_code

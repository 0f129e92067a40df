"""Peers that speak to a broker byte by byte, and a bystander that must not notice them."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kbroker.client.plain_connection import PlainConnection
from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import decode_response, encode_request
from kbroker.protocol.messages.fetch import FetchRequest
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.offsets import ListOffsetsRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.topics import CreateTopicsRequest
from kbroker.protocol.primitives import ZERO_UUID
from kbroker.protocol.records.batch import split_batches
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.record import decode_batch
from kbroker.protocol.schema import Message, schema_of
from tests.protocol.frames import joined

PRODUCE_VERSION = 9
FETCH_VERSION = 12
NOT_YET = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)
"""What a broker answers until it has heard of a topic, that it leads, and where what is committed ends."""
SLOWEST_S = 2.0
"""A bystander's request may take this long on a machine that does other things too."""


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request_bytes(message: Message, version: int, correlation_id: int = 1) -> bytes:
    """A request's frame, its size in front."""
    return joined(encode_request(message, version, correlation_id, "raw"))


def resident_bytes(pid: int) -> int:
    """Memory of a process that is really there."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Peer:
    """A raw connection; every wait ends after `timeout` seconds."""

    def __init__(self, broker: BrokerProcess, timeout: float = 20.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send; that the broker has closed already is for the reading side to find out."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def receive(self) -> bytes | None:
        """The next answer without its size; None when the broker closes instead. TimeoutError when neither comes."""
        size = self._read(4)
        return None if size is None else self._read(struct.unpack(">i", size)[0])

    def _read(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                part = self.socket.recv(min(count - len(data), 1 << 20))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)

    def is_closed(self, timeout: float = 20.0) -> bool:
        """Whether the broker ends the connection within that time, having sent nothing."""
        self.socket.settimeout(timeout)
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def ask(self, message: Message, version: int) -> Any:
        """The answer to a request; ConnectionError when there is none."""
        self.send(request_bytes(message, version))
        answer = self.receive()
        if answer is None:
            raise ConnectionError("the broker closed the connection")
        response_type: Any = API_BY_KEY[schema_of(type(message)).api_key].response
        return decode_response(answer, response_type, version)[1]


def one_batch(*values: bytes, timestamp: int | None = None, **producer: Any) -> bytearray:
    """A batch as a good producer sends it."""
    builder = BatchBuilder(1 << 24)
    for value in values or (b"value",):
        builder.append(b"key", value, (), timestamp or time.time_ns() // 1_000_000)
    return bytearray(builder.build(**producer))


def produce_request(
    topic: str, records: bytes | bytearray | None, partition: int = 0, acks: int = -1, timeout_ms: int = 10_000
) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
    )


def produce(peer: Peer, topic: str, records: bytes | bytearray | None, partition: int = 0, version: int = 9) -> Any:
    """The partition's answer to one batch."""
    answer = peer.ask(produce_request(topic, records, partition), version)
    return answer.responses[0].partition_responses[0]


def fetch_request(
    topic: str, offset: int = 0, partition: int = 0, max_bytes: int = 1 << 20, max_wait_ms: int = 0
) -> FetchRequest:
    wanted = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
    )


def fetch(peer: Peer, topic: str, offset: int = 0, partition: int = 0, **values: int) -> Any:
    """The partition's answer to one fetch."""
    answer = peer.ask(fetch_request(topic, offset, partition, **values), FETCH_VERSION)
    return answer.responses[0].partitions[0]


def end_offset(peer: Peer, topic: str, partition: int, timeout: float = 30.0) -> int:
    """The end of what is committed, from the leader.

    A broker needs a moment until it knows the topic and that it leads, and a new leader until it knows the end.
    """
    wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    asked = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])
    deadline = time.monotonic() + timeout
    while True:
        (found,) = peer.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5).topics[0].partitions
        if found.error_code not in NOT_YET:
            assert not found.error_code, found
            return int(found.offset)
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def read_all(broker: BrokerProcess, topic: str, partition: int, start: int = 0) -> list[bytes]:
    """All values that are committed from an offset on, from the leader."""
    with Peer(broker, 30) as peer:
        return _read(peer, topic, partition, start, end_offset(peer, topic, partition))


def read_copy(broker: BrokerProcess, topic: str, partition: int) -> list[bytes]:
    """All values up to the high watermark that the broker knows: a follower's may be behind."""
    with Peer(broker, 30) as peer:
        return _read(peer, topic, partition, 0, 0)


def _read(peer: Peer, topic: str, partition: int, start: int, end: int) -> list[bytes]:
    """Values up to the high watermark, `end` at least: offsets must be contiguous, and checksums right."""
    values: list[bytes] = []
    while True:
        answer = fetch(peer, topic, start + len(values), partition, max_bytes=4 << 20)
        assert not answer.error_code, answer
        data = bytes(answer.records or b"")
        before = len(values)
        for position, size in split_batches(data):
            for record in decode_batch(data, position, size):
                if record.offset >= start + len(values):
                    assert record.offset == start + len(values)
                    values.append(bytes(record.value or b""))
        if len(values) == before:
            assert answer.high_watermark == start + len(values) >= end
            return values


def create_topic(broker: BrokerProcess, name: str, partitions: int = 1, **configs: str) -> None:
    """Make a topic; `retention_ms="1"` stands for retention.ms=1."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    with Peer(broker, 30) as peer:
        (result,) = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 7).topics
    assert not result.error_code, (result.error_code, result.error_message)


def leaders(broker: BrokerProcess, topic: str) -> dict[int, tuple[int, int]]:
    """Partition -> (error, leader)."""
    wanted = MetadataRequest.MetadataRequestTopic(topic_id=ZERO_UUID, name=topic)
    with Peer(broker) as peer:
        answer = peer.ask(MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), 12)
    return {p.partition_index: (int(p.error_code), p.leader_id) for p in answer.topics[0].partitions}


class StoppedClock:
    """How long this process stood still, or was not let run, all together: no broker is to blame for that."""

    STEP_S = 0.02

    def __init__(self) -> None:
        self.lost_s = 0.0
        self._ticked = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clock")
        self._thread.start()

    def now(self) -> float:
        """The time without what was lost."""
        late = time.monotonic() - self._ticked - self.STEP_S
        return time.monotonic() - self.lost_s - max(late, 0.0)

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self.STEP_S):
            now = time.monotonic()
            self.lost_s += max(now - self._ticked - self.STEP_S, 0.0)
            self._ticked = now


@contextlib.contextmanager
def bystander(
    broker: BrokerProcess, topic: str, partition: int = 0, slowest: float = SLOWEST_S
) -> Iterator[list[float]]:
    """Somebody who produces and fetches all the while, on one connection: the list of the durations.

    At the end it must have been served the whole time, without an error and without a wait above `slowest` seconds
    in which the machine ran.
    """
    clock = StoppedClock()
    durations: list[float] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def go() -> None:
        try:
            with contextlib.closing(
                PlainConnection("127.0.0.1", broker.port, client_id="bystander", timeout=30)
            ) as connection:
                while not stop.is_set():
                    begun = clock.now()
                    produced = connection.request(produce_request(topic, one_batch(), partition), PRODUCE_VERSION)
                    appended = produced.responses[0].partition_responses[0]
                    assert not appended.error_code, appended
                    offset = appended.base_offset
                    fetched = connection.request(fetch_request(topic, offset, partition), FETCH_VERSION)
                    found = fetched.responses[0].partitions[0]
                    assert not found.error_code, found
                    assert int.from_bytes(bytes(found.records[:8]), "big") == offset
                    durations.append(clock.now() - begun)
                    stop.wait(0.01)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=go, name="bystander")
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not durations and not failures and time.monotonic() < deadline:
            time.sleep(0.01)
        yield durations
    finally:
        stop.set()
        thread.join(60)
        clock.stop()
    assert not failures, failures
    assert durations
    assert max(durations) < slowest, f"served after {max(durations):.1f} s"

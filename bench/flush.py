"""flush.messages=1: what a flush before each acknowledgement costs, beside Apache Kafka.

Once on the disk as it is, once with each sync taking two milliseconds more (slow_sync.c): disks in servers sync in
0.05 ms, cheap ones and cloud volumes in 1 to 10 ms. Kafka flushes after each append; kbroker lets all appends that wait
for the disk share the next flush.
"""

from __future__ import annotations

import selectors
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.broker import RECORD, Figures, create_topic, produce
from bench.peers import framed
from bench.systems import System
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.records.builder import BatchBuilder

SOURCE = Path(__file__).with_name("slow_sync.c")
VERSION = 8


@contextmanager
def slow_sync() -> Iterator[dict[str, str]]:
    """Compile the slower fsync; gives the environment that a broker is started with."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "slow_sync.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True, timeout=60)
        yield {"LD_PRELOAD": str(library)}


def produce_frame(topic: str) -> bytes:
    """Return a Produce request with one record of 1 KB in one batch, acks=all."""
    builder = BatchBuilder(4 * RECORD)
    builder.append(None, bytes(RECORD))
    partition = ProduceRequest.PartitionProduceData(index=0, records=bytes(builder.build()))
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    return framed(request, VERSION)


def many_producers(system: System, topic: str, producers: int, in_flight: int, seconds: float = 5) -> Figures:
    """Let many connections keep so many requests in flight, one record each; returns acknowledged records/s.

    The client is a bare loop over sockets, so that it is not what is measured.
    """
    frame = produce_frame(topic)
    selector = selectors.DefaultSelector()
    connections = [socket.create_connection(("127.0.0.1", system.port), timeout=30) for _ in range(producers)]
    answer_size = 0
    begun = dict.fromkeys(connections, b"")
    """Of each connection: an answer that has not arrived as a whole."""
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(frame)
        size = connection.recv(4, socket.MSG_WAITALL)
        answer_size = 4 + int.from_bytes(size, "big")
        check_answers(system, topic, size + connection.recv(answer_size - 4, socket.MSG_WAITALL), answer_size)
        selector.register(connection, selectors.EVENT_READ)
    began = time.monotonic()
    for connection in connections:
        connection.sendall(frame * in_flight)
    count = 0
    while (elapsed := time.monotonic() - began) < seconds:
        for key, _ in selector.select(1):
            ready = key.fileobj
            assert isinstance(ready, socket.socket)
            data = begun[ready] + ready.recv(65_536)
            answers = check_answers(system, topic, data, answer_size)
            begun[ready] = data[answers * answer_size :]
            count += answers
            if answers:
                ready.sendall(frame * answers)
    selector.close()
    for connection in connections:
        connection.close()
    return {"records/s": count / elapsed}


def check_answers(system: System, topic: str, data: bytes, answer_size: int) -> int:
    """Return how many whole answers these are; none may be a refusal, or what is counted was not written."""
    answers = len(data) // answer_size
    # size, correlation id, topics, name, partitions, index: as long in each answer; then the error
    error_at = 22 + len(topic)
    for start in range(0, answers * answer_size, answer_size):
        error = data[start + error_at : start + error_at + 2]
        assert error == b"\0\0", f"{system.name} refused: {data[start : start + answer_size].hex()}"
    return answers


def rows_on(system: System, disk: str, scale: float) -> dict[str, Figures]:
    """Measure every load on one running broker."""
    create_topic(system, "flushed", 8, flush_messages="1")
    create_topic(system, "flushed-one", 1, flush_messages="1")
    few, many = int(20_000 * scale), int(100_000 * scale)
    many_producers(system, "flushed-one", 64, 5)  # warm
    return {
        f"{disk}: 64 producers with 5 in flight": many_producers(system, "flushed-one", 64, 5),
        f"{disk}: 64 producers with 1 in flight": many_producers(system, "flushed-one", 64, 1),
        f"{disk}: Java, one record a batch": produce(system, "flushed-one", few, batch_size="1", linger_ms="0"),
        f"{disk}: Java, 16 KB batches": produce(system, "flushed-one", many, batch_size="16384", linger_ms="0"),
        f"{disk}: Java, 16 KB batches, 8 partitions": produce(system, "flushed", many, batch_size="16384"),
    }


def measure(kind: type[System], scale: float) -> dict[str, Figures]:
    """Measure one system on both disks; `scale` shrinks the loads."""
    with kind() as system:
        rows = rows_on(system, "this disk", scale)
    if shutil.which("cc"):
        with slow_sync() as environment, kind(environment=environment) as system:
            rows |= rows_on(system, "2 ms more", scale / 2)
    return rows

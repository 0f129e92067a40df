"""What the proxy of `kbroker verify` costs: megabytes and requests a second, beside the same without it.

Run as `python -m bench.proxy`. A broker that has all answers ready, the proxy, and a client: a process each.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from multiprocessing.connection import Connection as Pipe

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import encode_request, encode_response, read_request_header
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from kbroker.protocol.schema import Message, schema_of
from kbroker.verify.proxy.proxy import Proxy

SECONDS = 2.0
PARTITIONS = 8
CORRELATION = slice(4, 8)
SIZES = (1 << 20, 10 << 20)


def written(parts: object) -> bytes:
    return b"".join(bytes(part) for part in parts)  # type: ignore[attr-defined]


def fetch_answer(size: int) -> Message:
    make = FetchResponse.PartitionData
    rows = [
        make(
            partition_index=index,
            error_code=ErrorCode.NONE,
            high_watermark=1,
            aborted_transactions=[],
            records=bytes(size // PARTITIONS),
        )
        for index in range(PARTITIONS)
    ]
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=rows)])


def produce(size: int) -> Message:
    rows = [
        ProduceRequest.PartitionProduceData(index=index, records=bytes(size // PARTITIONS))
        for index in range(PARTITIONS)
    ]
    return ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=rows)]
    )


def fetch(size: int) -> Message:
    """The size that is asked for is the size of the answer."""
    return FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=size, topics=[])


LOADS: dict[str, tuple[Message, int, int]] = {
    "Heartbeat": (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 0),
    "Produce v11, 1 MiB": (produce(SIZES[0]), 11, SIZES[0]),
    "Fetch v15, 1 MiB": (fetch(SIZES[0]), 15, SIZES[0]),
    "Fetch v17, 1 MiB": (fetch(SIZES[0]), 17, SIZES[0]),
    "Fetch v15, 10 MiB": (fetch(SIZES[1]), 15, SIZES[1]),
    "Fetch v17, 10 MiB": (fetch(SIZES[1]), 17, SIZES[1]),
}
"""What is asked, in which version, and how many bytes of records go by."""


def ready_answers() -> dict[tuple[int, int, int], bytearray]:
    """By API key, version and size."""
    answers = {}
    for request, version, size in LOADS.values():
        key = schema_of(type(request)).api_key
        made: Message
        if isinstance(request, FetchRequest):
            made = fetch_answer(size)
        elif isinstance(request, ProduceRequest):
            made = ProduceResponse(responses=[])
        else:
            made = HeartbeatResponse(error_code=ErrorCode.NONE)
        answers[key, version, size] = bytearray(written(encode_response(made, version, 0)))
    return answers


def fill(sock: socket.socket, view: memoryview) -> memoryview:
    left = view
    while left:
        count = sock.recv_into(left)
        if not count:
            raise EOFError
        left = left[count:]
    return view


def receive(sock: socket.socket, buffer: memoryview) -> memoryview:
    """One frame, without its size."""
    return fill(sock, buffer[: int.from_bytes(fill(sock, buffer[:4]), "big")])


def serve(pipe: Pipe) -> None:
    """Be the broker: one connection after the other."""
    answers = ready_answers()
    sizes = {(key, version): size for key, version, size in answers if key != schema_of(FetchRequest).api_key}
    buffer = memoryview(bytearray(64 << 20))
    with socket.create_server(("127.0.0.1", 0)) as server:
        pipe.send(server.getsockname()[1])
        while True:
            sock, _ = server.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                while True:
                    frame = receive(sock, buffer)
                    header, position = read_request_header(frame)
                    size = sizes.get((header.api_key, header.api_version))
                    if size is None:  # Fetch: replica id (before v15), max wait, min bytes, max bytes
                        size = int.from_bytes(frame[position + 8 : position + 12], "big")
                    answer = answers[header.api_key, header.api_version, size]
                    answer[CORRELATION] = header.correlation_id.to_bytes(4, "big")
                    sock.sendall(answer)
            except (EOFError, OSError, KeyError):
                sock.close()


def ask(pipe: Pipe, port: int) -> None:
    """Be the client: each load for a while, one request after the other; tell requests a second of each."""
    buffer = memoryview(bytearray(64 << 20))
    for request, version, _ in LOADS.values():
        frame = written(encode_request(request, version, 1, "bench"))
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            count, begin = 0, time.perf_counter()
            while (spent := time.perf_counter() - begin) < SECONDS:
                sock.sendall(frame)
                receive(sock, buffer)
                count += 1
        pipe.send(count / spent)


def figures(context: multiprocessing.context.SpawnContext, port: int) -> list[float]:
    ours, theirs = context.Pipe()
    client = context.Process(target=ask, args=(theirs, port))
    client.start()
    told = [ours.recv() for _ in LOADS]
    client.join()
    return told


def main() -> None:
    """Measure with and without the proxy, and print both."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    broker = context.Process(target=serve, args=(theirs,), daemon=True)
    broker.start()
    port = ours.recv()
    direct = figures(context, port)
    with Proxy(f"127.0.0.1:{port}") as proxy:
        through = figures(context, int(proxy.bootstrap.rpartition(":")[2]))
    broker.terminate()
    print(f"{'load':<22} {'direct':>18} {'through the proxy':>18}")
    for (name, (_, _, size)), alone, proxied in zip(LOADS.items(), direct, through, strict=True):
        each = [f"{rate * size / 1e6:,.0f} MB/s" if size else f"{rate:,.0f} requests/s" for rate in (alone, proxied)]
        print(f"{name:<22} {each[0]:>18} {each[1]:>18}")


if __name__ == "__main__":
    main()

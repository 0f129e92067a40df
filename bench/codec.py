"""How long the codec takes: Produce and Fetch with 1 and 100 partitions, both directions, compiled and interpreted.

Run as `python -m bench.codec`. Microseconds per message, the best of three rounds.
"""

import timeit
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kbroker.protocol import codec
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from kbroker.protocol.schema import Message
from tests.protocol.interpreted import load_interpreted

RECORDS = b"x" * 16384


def produce_request(partitions: int) -> Message:
    rows = [ProduceRequest.PartitionProduceData(index=index, records=RECORDS) for index in range(partitions)]
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=rows)
    return ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])


def produce_response(partitions: int) -> Message:
    make = ProduceResponse.PartitionProduceResponse
    rows = [make(index=index, error_code=ErrorCode.NONE, base_offset=index) for index in range(partitions)]
    return ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(name="orders", partition_responses=rows)])


def fetch_request(partitions: int) -> Message:
    make = FetchRequest.FetchPartition
    rows = [make(partition=index, fetch_offset=7, partition_max_bytes=1 << 20) for index in range(partitions)]
    topic = FetchRequest.FetchTopic(topic_id=bytes(range(16)), partitions=rows)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


def fetch_response(partitions: int) -> Message:
    rows = [
        FetchResponse.PartitionData(
            partition_index=index,
            error_code=ErrorCode.NONE,
            high_watermark=7,
            aborted_transactions=None,
            records=RECORDS,
        )
        for index in range(partitions)
    ]
    topic = FetchResponse.FetchableTopicResponse(topic_id=bytes(range(16)), partitions=rows)
    return FetchResponse(responses=[topic])


CASES = (
    ("Produce request", produce_request, 9),
    ("Produce response", produce_response, 9),
    ("Fetch request", fetch_request, 16),
    ("Fetch response", fetch_response, 16),
)


def microseconds(function: Callable[[], Any], times: int) -> float:
    return min(timeit.repeat(function, number=times, repeat=3)) / times * 1e6


def measure(form: ModuleType, build: Callable[[int], Message], version: int, partitions: int) -> tuple[float, float]:
    """Return the microseconds of decoding and of encoding."""
    message = build(partitions)
    frame = bytearray(form.encode(message, version))
    times = 10_000 // partitions
    return (
        microseconds(lambda: form.decode(type(message), frame, version), times),
        microseconds(lambda: form.write_message(form.Writer(), message, version), times),
    )


def main() -> None:
    forms = {"interpreted": load_interpreted()}
    if not str(codec.__file__).endswith(".py"):
        forms = {"compiled": codec, **forms}
    heads = "".join(f"{name + ' ' + way:>20}" for name in forms for way in ("decode", "encode"))
    print(f"{'µs per message':32}{heads}{'build':>10}")
    for partitions in (1, 100):
        for title, build, version in CASES:
            figures = [figure for form in forms.values() for figure in measure(form, build, version, partitions)]
            made = microseconds(lambda build=build, n=partitions: build(n), 10_000 // partitions)  # type: ignore[misc]
            name = f"{title} v{version}, {partitions} partitions"
            print(f"{name:32}" + "".join(f"{figure:20.2f}" for figure in figures) + f"{made:10.2f}")


if __name__ == "__main__":
    main()

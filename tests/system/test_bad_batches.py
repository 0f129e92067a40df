"""Record batches that a leader must not take, sent to a real broker: refused with Kafka's code, nothing stored.

Apache Kafka 3.9.2 was given these very bytes and gave these codes, but for these: it never answers null records; it
says UNKNOWN_SERVER_ERROR to compressed records that it cannot unpack or does not know how to; it lets a first record
whose offset delta is not 0 pass.
"""

import random
import struct
from collections.abc import Callable, Iterator

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.offsets import ListOffsetsRequest
from kbroker.protocol.records.batch import HEADER_SIZE, split_batches, write_crc
from kbroker.protocol.records.builder import BatchBuilder
from kbroker.protocol.records.compression import CompressionType, compress
from kbroker.protocol.records.record import decode_batch
from tests.fixtures.brokers import MakeBroker
from tests.system.wire import (
    Peer,
    bystander,
    create_topic,
    fetch,
    one_batch,
    produce,
    produce_request,
    request_bytes,
    resident_bytes,
)

Spoil = Callable[[bytearray], bytearray]

CORRUPT, INVALID = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
REGIONS = {
    "base offset": (7, INVALID),
    "length": (11, CORRUPT),
    "magic": (16, CORRUPT),
    "crc": (17, CORRUPT),
    "attributes": (22, CORRUPT),
    "last offset delta": (26, CORRUPT),
    "base timestamp": (30, CORRUPT),
    "max timestamp": (40, CORRUPT),
    "producer id": (50, CORRUPT),
    "producer epoch": (52, CORRUPT),
    "base sequence": (56, CORRUPT),
    "count": (60, CORRUPT),
    "a record's length": (HEADER_SIZE, CORRUPT),
    "a record's value": (-3, CORRUPT),
}
"""Region of the header -> (the byte in which a bit is flipped, the answer)."""


@pytest.fixture
def topic(broker: BrokerProcess, topic_name: str) -> str:
    create_topic(broker, topic_name)
    return topic_name


@pytest.fixture
def peer(broker: BrokerProcess, topic: str) -> Iterator[Peer]:
    """A connection to a broker that serves somebody else on the same topic meanwhile."""
    with bystander(broker, topic), Peer(broker) as connection:
        yield connection


def flipped(batch: bytearray, position: int, bit: int = 1) -> bytearray:
    batch[position] ^= bit
    return batch


def patched(batch: bytearray, position: int, layout: str, value: int) -> bytearray:
    """Write a lie into the header, with a CRC that confirms it."""
    struct.pack_into(layout, batch, position, value)
    write_crc(batch, 0)
    return batch


def three() -> bytearray:
    return one_batch(b"first lie", b"second lie", b"third lie")


def end_offset(peer: Peer, topic: str) -> int:
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])]
    )
    return int(peer.ask(request, 7).topics[0].partitions[0].offset)


def stored_values(peer: Peer, topic: str) -> list[bytes]:
    values: list[bytes] = []
    offset, end = 0, end_offset(peer, topic)
    while offset < end:
        data = bytes(fetch(peer, topic, offset).records)
        for position, size in split_batches(data):
            records = decode_batch(data, position, size)
            values += [bytes(record.value or b"") for record in records]
            offset = records[-1].offset + 1
    return values


def refused(peer: Peer, topic: str, batch: bytes | bytearray | None, code: ErrorCode, version: int = 9) -> None:
    answer = produce(peer, topic, batch, version=version)
    assert (answer.error_code, answer.base_offset) == (code, -1), answer
    assert produce(peer, topic, one_batch(b"good")).error_code is ErrorCode.NONE
    assert not [value for value in stored_values(peer, topic) if value not in (b"good", b"value")]


@pytest.mark.parametrize("region", REGIONS)
def test_a_bit_flipped_on_the_way_is_found_in_every_region(peer: Peer, topic: str, region: str) -> None:
    position, code = REGIONS[region]
    refused(peer, topic, flipped(three(), position), code)


def test_no_flipped_bit_of_a_batch_gets_through(peer: Peer, topic: str) -> None:
    """Any bit but those of the leader epoch, which is the leader's to write and not under the CRC."""
    good = three()
    places = [place for place in range(len(good)) if not 12 <= place < 16]
    for place in random.Random(5).sample(places, 60):
        answer = produce(peer, topic, flipped(three(), place, 1 << (place % 8)))
        assert answer.error_code in (CORRUPT, INVALID, ErrorCode.MESSAGE_TOO_LARGE), (place, answer)
    assert not [value for value in stored_values(peer, topic) if value != b"value"]


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        pytest.param(lambda b: patched(b, 57, ">i", 2), INVALID, id="count too small"),
        pytest.param(lambda b: patched(b, 57, ">i", 4), INVALID, id="count too large"),
        pytest.param(lambda b: patched(b, 57, ">i", 0), INVALID, id="count 0"),
        pytest.param(lambda b: patched(b, 57, ">i", -1), INVALID, id="count -1"),
        pytest.param(lambda b: patched(b, 57, ">i", (1 << 31) - 1), INVALID, id="count huge"),
        pytest.param(lambda b: patched(b, 23, ">i", 1), INVALID, id="last offset delta too small"),
        pytest.param(lambda b: patched(b, 23, ">i", 1000), INVALID, id="last offset delta too large"),
        pytest.param(lambda b: patched(b, 23, ">i", -5), INVALID, id="last offset delta negative"),
        pytest.param(
            lambda b: patched(patched(b, 23, ">i", 99), 57, ">i", 100), INVALID, id="count and delta agree on a lie"
        ),
        pytest.param(lambda b: patched(b, 61, ">B", 0x7E), INVALID, id="a record longer than the batch"),
        pytest.param(lambda b: patched(b, 61, ">B", 0x01), INVALID, id="a record of negative length"),
        pytest.param(lambda b: patched(b, 64, ">B", 0x08), INVALID, id="the first record's offset delta is not 0"),
        pytest.param(lambda b: patched(b, 65, ">B", 0x7E), INVALID, id="a key longer than its record"),
        pytest.param(lambda b: patched(b, 21, ">H", 0x20), INVALID, id="a control batch"),
        pytest.param(lambda b: patched(b, 43, ">q", 5), INVALID, id="a producer id without a sequence"),
    ],
)
def test_a_lie_in_the_header_is_found_though_the_crc_is_right(
    peer: Peer, topic: str, spoil: Spoil, code: ErrorCode
) -> None:
    refused(peer, topic, spoil(three()), code)


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_any_magic_but_2_is_refused(peer: Peer, topic: str, magic: int) -> None:
    batch = three()
    batch[16] = magic
    refused(peer, topic, batch, INVALID if magic < 2 else CORRUPT)


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        pytest.param(b"", INVALID, id="empty"),
        pytest.param(None, INVALID, id="null"),
        pytest.param(three() + three(), INVALID, id="two batches"),
        pytest.param(three()[:-1], INVALID, id="a batch cut short by a byte"),
        pytest.param(three()[:61], INVALID, id="a header alone"),
        pytest.param(three()[:60], INVALID, id="most of a header"),
        pytest.param(bytes(200), CORRUPT, id="zeros"),
        pytest.param(b"\xff" * 200, CORRUPT, id="ones"),
    ],
)
def test_anything_but_one_whole_batch_is_refused(
    peer: Peer, topic: str, batches: bytes | None, code: ErrorCode
) -> None:
    refused(peer, topic, batches, code)


def test_bytes_behind_the_batch_are_not_stored(peer: Peer, topic: str) -> None:
    """As Kafka: what is no whole batch at the end is left out."""
    answer = produce(peer, topic, one_batch(b"value") + b"trailing bytes")
    assert answer.error_code is ErrorCode.NONE
    data = bytes(fetch(peer, topic, answer.base_offset).records)
    assert b"trailing" not in data


def test_a_batch_that_is_too_large_is_refused_and_the_next_one_taken(peer: Peer, topic: str) -> None:
    refused(peer, topic, one_batch(b"x" * 1_100_000), ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("codec", [c for c in CompressionType if c is not CompressionType.NONE])
@pytest.mark.parametrize("lie", ["garbage", "cut short", "more records than it says"])
@pytest.mark.parametrize("configs", [{}, {"compression_type": "uncompressed", "cleanup_policy": "compact"}])
def test_a_compressed_batch_whose_contents_cannot_be_read_is_refused(
    broker: BrokerProcess, topic_name: str, codec: CompressionType, lie: str, configs: dict[str, str]
) -> None:
    create_topic(broker, topic_name, 1, **configs)
    builder = BatchBuilder(1 << 24, codec)
    for number in range(200):
        builder.append(b"key-%d" % number, b"a lie %d" % number, (), 1_700_000_000_000)
    batch = bytearray(builder.build())
    if lie == "garbage":
        batch[HEADER_SIZE:] = random.Random(1).randbytes(len(batch) - HEADER_SIZE)
        write_crc(batch, 0)
    elif lie == "cut short":
        del batch[-40:]
        patched(batch, 8, ">i", len(batch) - 12)
    else:
        patched(patched(batch, 57, ">i", 150), 23, ">i", 149)
    with Peer(broker) as peer:
        answer = produce(peer, topic_name, batch)
        assert (answer.error_code, answer.base_offset) == (INVALID, -1), answer
        assert produce(peer, topic_name, one_batch()).base_offset == 0


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_what_is_not_compressed_as_it_says_is_refused_without_being_unpacked(
    peer: Peer, topic: str, codec: CompressionType
) -> None:
    refused(peer, topic, patched(three(), 21, ">H", codec), INVALID)


@pytest.mark.slow
def test_small_batches_that_unpack_to_much_neither_stall_the_broker_nor_fill_its_memory(
    broker: BrokerProcess, topic: str, topic_name: str
) -> None:
    """Thirty batches of a few KB each, half of them damaged: unpacked they would be gigabytes."""
    create_topic(broker, f"{topic_name}-other")
    bomb = compressed_bomb()
    damaged = bytearray(bomb)
    damaged[len(damaged) // 2] ^= 0xFF
    write_crc(damaged, 0)
    before = resident_bytes(broker.pid)
    with bystander(broker, topic), Peer(broker, 30) as peer:
        for _ in range(15):
            for batch in (bomb, damaged):
                answer = produce(peer, f"{topic_name}-other", bytearray(batch))
                assert answer.error_code is INVALID, answer
    assert resident_bytes(broker.pid) - before < 100 << 20


def compressed_bomb() -> bytearray:
    """A batch of zstd data of 64 MB that say they are one record."""
    batch = patched(one_batch(), 21, ">H", CompressionType.ZSTD)
    payload = bytes(compress(CompressionType.ZSTD, bytes(64 << 20)))
    bomb = batch[:HEADER_SIZE] + payload
    struct.pack_into(">i", bomb, 8, len(bomb) - 12)
    write_crc(bomb, 0)
    return bomb


def test_an_unknown_compression_is_refused(peer: Peer, topic: str) -> None:
    for codec in (5, 6, 7):
        answer = produce(peer, topic, patched(three(), 21, ">H", codec))
        assert answer.error_code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, (codec, answer)
    assert not [value for value in stored_values(peer, topic) if value != b"value"]


def test_a_bad_batch_with_acks_0_closes_the_connection_of_its_producer(broker: BrokerProcess, topic: str) -> None:
    with bystander(broker, topic):
        for batch in (flipped(three(), 70), three() + three(), bytearray()):
            with Peer(broker) as peer:
                peer.send(request_bytes(produce_request(topic, batch, acks=0), 9))
                assert peer.is_closed()
    with Peer(broker) as peer:
        peer.send(request_bytes(produce_request(topic, one_batch(), acks=0), 9))
        peer.send(request_bytes(produce_request("no-such-topic-here", one_batch(), acks=0), 9))
        assert peer.is_closed()
    with Peer(broker) as peer:
        assert not [value for value in stored_values(peer, topic) if value != b"value"]


def test_offsets_and_partitions_that_are_not_there_have_their_codes(peer: Peer, topic: str) -> None:
    end = produce(peer, topic, one_batch()).base_offset + 1
    for offset in (-1, -2, -(1 << 63), end + 1000, (1 << 63) - 1):
        answer = fetch(peer, topic, offset)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1), offset
        assert not answer.records
    for partition in (1, -1, (1 << 31) - 1, -(1 << 31)):
        assert fetch(peer, topic, 0, partition).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert produce(peer, topic, one_batch(), partition).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name in ("not-there", "", "..", "bad name", "x" * 300):
        assert fetch(peer, name).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert produce(peer, name, one_batch()).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_batch_larger_than_a_small_request_limit_never_reaches_the_log(
    make_broker: MakeBroker, topic_name: str
) -> None:
    broker = make_broker(properties={"socket.request.max.bytes": "100000"})
    create_topic(broker, topic_name)
    with bystander(broker, topic_name), Peer(broker) as peer:
        peer.send(request_bytes(produce_request(topic_name, one_batch(b"x" * 100_000)), 9))
        assert peer.is_closed()

"""Round trips of every message in every version, on both forms of the codec; damaged bytes; the codec's rules."""

import random
import tracemalloc
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbroker.protocol import codec
from kbroker.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from kbroker.protocol.messages.api_versions import ApiVersionsResponse
from kbroker.protocol.messages.fetch import FetchRequest, FetchResponse
from kbroker.protocol.messages.groups import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetFetchResponse,
)
from kbroker.protocol.messages.internal_topics import ConsumerGroupMemberMetadataValue
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.offsets import ListOffsetsResponse
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.primitives import LONGEST_STRING, Writer
from kbroker.protocol.schema import Message, schema_of
from tests.protocol.definitions import MESSAGES
from tests.protocol.frames import joined
from tests.protocol.interpreted import load_interpreted
from tests.protocol.values import structs

INTERPRETED = load_interpreted()


def versions_of(message_type: type[Message]) -> range:
    versions = schema_of(message_type).versions
    return range(versions.first, versions.last + 1)


def finished(steps: Generator[None, None, Any]) -> Any:
    """Run to the end; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def written_in_steps(message: Message, version: int) -> bytes:
    writer = Writer()
    finished(codec.write_message_in_steps(writer, message, version))
    return writer.to_bytes()


def parts_of(message: Message, version: int) -> list[Any]:
    """What is sent of a message, piece by piece."""
    writer = Writer()
    codec.write_message(writer, message, version)
    return writer.parts()


def outcome(function: Any, *arguments: Any) -> Any:
    """What a call returns or raises, for comparison."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("message_type", MESSAGES, ids=lambda message_type: message_type.__name__)
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_written_is_read_again_by_both_forms(message_type: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(versions_of(message_type)))
    message = data.draw(structs(message_type, version))
    encoded = codec.encode(message, version)
    assert INTERPRETED.encode(message, version) == encoded
    assert joined(parts_of(message, version)) == encoded
    assert written_in_steps(message, version) == encoded
    for decode in (codec.decode, INTERPRETED.decode, lambda *given: finished(codec.decode_in_steps(*given))):
        assert decode(message_type, encoded, version) == message
        assert decode(message_type, bytearray(b"xx" + encoded + b"behind"), version, 2) == message


@pytest.mark.parametrize("message_type", MESSAGES, ids=lambda message_type: message_type.__name__)
@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_bytes_are_malformed_in_both_forms_alike(message_type: type[Message], data: st.DataObject) -> None:
    version = versions_of(message_type)[-1] if data.draw(st.booleans()) else versions_of(message_type)[0]
    encoded = codec.encode(data.draw(structs(message_type, version)), version)[:400]
    rng = random.Random(data.draw(st.integers(0, 1 << 30)))
    for _ in range(12):
        damaged = bytearray(encoded[: rng.randrange(len(encoded) + 1)])
        for _ in range(rng.randrange(4) if damaged else 0):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        found = outcome(codec.decode, message_type, damaged, version)
        assert found == outcome(INTERPRETED.decode, message_type, damaged, version) or has_nan(found)
        if isinstance(found, tuple):
            assert found[0] is MalformedMessage


def has_nan(found: Any) -> bool:
    return "nan" in repr(found)


def test_a_huge_count_is_refused_before_anything_is_allocated() -> None:
    body = bytes.fromhex("ffff 0001 00000001 7fffffff")
    tracemalloc.start()
    with pytest.raises(MalformedMessage, match="2147483647 elements announced in topic_data"):
        codec.decode(ProduceRequest, body, 3)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


@pytest.mark.parametrize("form", [codec, INTERPRETED])
def test_the_elements_of_all_arrays_together_are_limited(form: Any) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name=f"t{number}") for number in range(100)]
    encoded = codec.encode(MetadataRequest(topics=topics), 4)
    assert len(form.decode(MetadataRequest, encoded, 4, 0, 100).topics) == 100
    with pytest.raises(MalformedMessage, match="1 elements more than are allowed"):
        form.decode(MetadataRequest, encoded, 4, 0, 99)
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    of_two = FetchRequest(
        max_wait_ms=1,
        min_bytes=1,
        topics=[FetchRequest.FetchTopic(topic=name, partitions=[partition] * 10) for name in ("one", "two")],
    )
    body = codec.encode(of_two, 4)
    form.decode(FetchRequest, body, 4, 0, 22)
    with pytest.raises(MalformedMessage, match="elements more"):
        form.decode(FetchRequest, body, 4, 0, 21)


@pytest.mark.parametrize("form", [codec, INTERPRETED])
def test_tagged_fields_and_numbers_count_as_elements(form: Any) -> None:
    beat = codec.encode(HeartbeatRequest(group_id="g", generation_id=5, member_id="m"), 4)
    tagged = beat[:-1] + b"\x64" + b"\x63\x00" * 100
    assert form.decode(HeartbeatRequest, tagged, 4, 0, 100).member_id == "m"
    with pytest.raises(MalformedMessage, match="elements more"):
        form.decode(HeartbeatRequest, tagged, 4, 0, 99)
    numbers = FetchRequest.ForgottenTopic(topic="t", partitions=list(range(400)))
    forgotten = codec.encode(FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], forgotten_topics_data=[numbers]), 7)
    form.decode(FetchRequest, forgotten, 7, 0, 101)
    with pytest.raises(MalformedMessage, match="elements more"):
        form.decode(FetchRequest, forgotten, 7, 0, 100)


@pytest.mark.parametrize("form", [codec, INTERPRETED])
def test_long_texts_count_as_several_elements(form: Any) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="t" * (5 << 10))] * 10
    encoded = codec.encode(MetadataRequest(topics=topics), 4)
    assert len(form.decode(MetadataRequest, encoded, 4, 0, 60).topics) == 10
    with pytest.raises(MalformedMessage, match="1 elements more than are allowed"):
        form.decode(MetadataRequest, encoded, 4, 0, 59)
    writer = getattr(form, "Writer", Writer)  # the interpreted form writes with an interpreted one
    form.write_message(writer(most_elements=60), MetadataRequest(topics=topics), 4)
    with pytest.raises(MalformedMessage, match="1 elements more than are to be written in one go"):
        form.write_message(writer(most_elements=59), MetadataRequest(topics=topics), 4)


@pytest.mark.parametrize("form", [codec, INTERPRETED])
@pytest.mark.parametrize("version", [4, 12])
def test_elements_encoded_beforehand_are_written_as_they_are(form: Any, version: int) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="t" * length) for length in (3, 2000, 5)]
    parts = [form.encode_elements([topic], MetadataRequest, version) for topic in topics[:2]]
    parts.append(form.encode_elements(topics[2:], MetadataRequest, version))
    beforehand: Any = form.EncodedArray(3, parts)
    expected = codec.encode(MetadataRequest(topics=topics), version)
    assert form.encode(MetadataRequest(topics=beforehand), version) == expected
    one_by_one = form.ElementWriter(MetadataRequest, version)
    for topic in topics:
        one_by_one.append(topic)
    assert form.encode(MetadataRequest(topics=one_by_one.array()), version) == expected
    none: Any = form.ElementWriter(MetadataRequest, version).array()
    assert form.encode(MetadataRequest(topics=none), version) == codec.encode(MetadataRequest(topics=[]), version)


@pytest.mark.parametrize("form", [codec, INTERPRETED])
def test_many_bytes_of_elements_are_not_copied_from_array_to_array(form: Any) -> None:
    partition = OffsetFetchResponse.OffsetFetchResponsePartition(
        partition_index=0, committed_offset=0, metadata="m" * 30_000, error_code=ErrorCode.NONE
    )
    inner: Any = form.ElementWriter(OffsetFetchResponse, 5)
    for _ in range(40):
        inner.append(partition)
    partitions = inner.array()
    outer: Any = form.ElementWriter(OffsetFetchResponse, 5)
    outer.append(OffsetFetchResponse.OffsetFetchResponseTopic(name="t", partitions=partitions))
    topics = outer.array()
    assert any(part is partitions.parts[0] for part in topics.parts)
    topic = OffsetFetchResponse.OffsetFetchResponseTopic(name="t", partitions=[partition] * 40)
    expected = codec.encode(OffsetFetchResponse(topics=[topic], error_code=ErrorCode.NONE), 5)
    assert form.encode(OffsetFetchResponse(topics=topics, error_code=ErrorCode.NONE), 5) == expected


@pytest.mark.parametrize("form", [codec, INTERPRETED])
def test_elements_of_more_bytes_than_allowed_are_refused_as_they_are_written(form: Any) -> None:
    """Inside of the buffer and outside of it: before the memory has grown by what is too much."""
    topic = MetadataRequest.MetadataRequestTopic(name="t" * 98)
    small: Any = form.ElementWriter(MetadataRequest, 4, most_bytes=1000)
    for _ in range(10):
        small.append(topic)
    with pytest.raises(KafkaError, match="more than 1000 bytes: ask for less") as refused:
        small.append(topic)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    encoded: Any = form.ElementWriter(MetadataRequest, 4, most_bytes=1000)
    with pytest.raises(KafkaError, match="more than 1000 bytes"):
        encoded.append_encoded(bytes(1001))
    partition = ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=0, error_code=ErrorCode.NONE, timestamp=0, offset=0
    )
    inner: Any = form.ElementWriter(ListOffsetsResponse, 1)
    for _ in range(100):
        inner.append(partition)
    outer: Any = form.ElementWriter(ListOffsetsResponse, 1, most_bytes=5000)
    of_topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=inner.array())
    outer.append(of_topic)
    outer.append(of_topic)
    with pytest.raises(KafkaError, match="more than 5000 bytes"):
        outer.append(of_topic)


def test_bad_text_and_null_are_malformed() -> None:
    with pytest.raises(MalformedMessage, match="not UTF-8"):
        codec.decode(HeartbeatRequest, bytes.fromhex("0002 c3 28 00000001 0000"), 0)
    with pytest.raises(MalformedMessage, match="null in group_id"):
        codec.decode(HeartbeatRequest, bytes.fromhex("ffff 00000001 0000"), 0)


@pytest.mark.parametrize("form", [codec, INTERPRETED])
def test_text_of_a_flexible_version_that_is_too_long_to_be_told_to_others_is_malformed(form: Any) -> None:
    """As in Kafka; a group of such a name could be made, but no list that has it could be answered."""

    def text(size: int) -> bytes:
        writer = Writer()
        writer.write_varint(size + 1)
        writer.write_raw(b"g" * size)
        return writer.to_bytes()

    def heartbeat(size: int) -> bytes:
        return text(size) + bytes.fromhex("00000001 02 6d 00 00")

    def describe(size: int) -> bytes:
        return bytes.fromhex("02") + text(size) + bytes.fromhex("00 00")

    assert form.decode(HeartbeatRequest, heartbeat(LONGEST_STRING), 4).group_id == "g" * LONGEST_STRING
    assert form.decode(DescribeGroupsRequest, describe(LONGEST_STRING), 5).groups == ["g" * LONGEST_STRING]
    with pytest.raises(MalformedMessage, match="text of 32768 bytes in group_id, 32767 are allowed"):
        form.decode(HeartbeatRequest, heartbeat(LONGEST_STRING + 1), 4)
    with pytest.raises(MalformedMessage, match="text of 32768 bytes in groups, 32767 are allowed"):
        form.decode(DescribeGroupsRequest, describe(LONGEST_STRING + 1), 5)


def test_golden_bytes_of_a_heartbeat() -> None:
    message = HeartbeatRequest(group_id="g", generation_id=5, member_id="me")
    assert codec.encode(message, 0).hex(" ") == "00 01 67 00 00 00 05 00 02 6d 65"
    assert codec.encode(message, 3).hex(" ") == "00 01 67 00 00 00 05 00 02 6d 65 ff ff"
    assert codec.encode(message, 4).hex(" ") == "02 67 00 00 00 05 03 6d 65 00 00"


def test_a_field_the_version_lacks_is_dropped_only_when_it_may_be() -> None:
    with pytest.raises(KafkaError, match="group_instance_id") as refused:
        codec.encode(HeartbeatRequest(group_id="g", generation_id=5, member_id="m", group_instance_id="i"), 2)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    asked = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[], rack_id="r1")
    assert codec.decode(FetchRequest, codec.encode(asked, 10), 10).rack_id == ""


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        codec.encode(HeartbeatRequest(group_id="g", generation_id=5, member_id="m"), 5)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_null_is_refused_in_a_version_without_it() -> None:
    everything = MetadataRequest(topics=None)
    assert codec.decode(MetadataRequest, codec.encode(everything, 1), 1).topics is None
    with pytest.raises(KafkaError, match="null"):
        codec.encode(everything, 0)


def test_unknown_tags_are_skipped_by_their_size_and_known_ones_end_where_their_value_does() -> None:
    encoded = codec.encode(HeartbeatRequest(group_id="g", generation_id=5, member_id="m"), 4)
    tagged = encoded[:-1] + bytes.fromhex("01 63 02 abcd")
    assert codec.decode(HeartbeatRequest, tagged, 4).member_id == "m"
    with pytest.raises(MalformedMessage):
        codec.decode(HeartbeatRequest, tagged[:-1], 4)
    answer = codec.encode(ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[], finalized_features_epoch=7), 3)
    assert codec.decode(ApiVersionsResponse, answer, 3).finalized_features_epoch == 7
    for size in (b"\x00", b"\x07", b"\x09", b"\x7f"):
        lying = answer.replace(b"\x01\x08", b"\x01" + size)
        assert codec.decode(ApiVersionsResponse, lying, 3).finalized_features_epoch == 7
        assert INTERPRETED.decode(ApiVersionsResponse, lying, 3).finalized_features_epoch == 7
    with pytest.raises(MalformedMessage):
        codec.decode(ApiVersionsResponse, answer[:-3], 3)


def test_a_tagged_nullable_struct_has_a_varint_before_it() -> None:
    classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(session_timeout_ms=9, supported_protocols=[])
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None, rack_id=None, client_id="c", client_host="h", subscribed_topic_names=[],
        subscribed_topic_regex=None, rebalance_timeout_ms=1, server_assignor=None, classic_member_metadata=classic,
    )  # fmt: skip
    encoded = codec.encode(value, 0)
    assert encoded.endswith(bytes.fromhex("01 00 07 01 00000009 01 00"))
    assert codec.decode(ConsumerGroupMemberMetadataValue, encoded, 0) == value


class FileSlice:
    """Stands for record batches that are sent from a file."""

    size = 5

    def read(self) -> bytes:
        return b"12345"


def test_records_from_elsewhere_are_a_part_of_their_own() -> None:
    records = FileSlice()
    partition = FetchResponse.PartitionData(
        partition_index=0, error_code=ErrorCode.NONE, high_watermark=1, aborted_transactions=None, records=records
    )
    topic = FetchResponse.FetchableTopicResponse(topic_id=bytes(15) + b"1", partitions=[partition])
    message = FetchResponse(responses=[topic])
    parts = parts_of(message, 13)
    assert [part for part in parts if part is records] == [records]
    found = codec.decode(FetchResponse, codec.encode(message, 13), 13)
    assert found.responses[0].partitions[0].records == b"12345"


def test_records_read_from_a_frame_can_be_changed_in_place() -> None:
    partition = ProduceRequest.PartitionProduceData(index=0, records=b"batch")
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[partition])
    frame = bytearray(codec.encode(ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic]), 9))
    records = codec.decode(ProduceRequest, frame, 9).topic_data[0].partition_data[0].records
    records[0:1] = b"B"
    assert b"Batch" in frame


@pytest.mark.parametrize("form", [codec, INTERPRETED], ids=["installed", "interpreted"])
def test_numbers_that_do_not_fit_are_refused(form: Any) -> None:
    for generation in (1 << 31, -(1 << 31) - 1, 1 << 70):
        with pytest.raises(OverflowError):
            form.encode(HeartbeatRequest(group_id="g", generation_id=generation, member_id="m"), 0)
    with pytest.raises(ValueError, match="32767"):
        form.encode(HeartbeatRequest(group_id="g" * 40000, generation_id=1, member_id="m"), 0)


def test_bytes_are_a_copy_that_outlives_the_frame() -> None:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"topics")]
    asked = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer", protocols=protocols
    )
    found = codec.decode(JoinGroupRequest, bytearray(codec.encode(asked, 0)), 0)
    assert type(found.protocols[0].metadata) is bytes

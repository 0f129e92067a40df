"""Headers: which version stands before which message, and whole frames."""

import pytest

from kbroker.protocol.codec import decode
from kbroker.protocol.errors import AnswerTooLarge, ErrorCode, KafkaError, MalformedMessage
from kbroker.protocol.headers import (
    MOST_TAGS,
    RequestHeader,
    decode_response,
    encode_request,
    encode_response,
    encode_response_in_steps,
    read_request_header,
    request_header_version,
    response_header_version,
)
from kbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kbroker.protocol.messages.fetch import FetchResponse
from kbroker.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse, SyncGroupResponse
from kbroker.protocol.primitives import MOST_ANSWER_BYTES
from tests.protocol.frames import joined

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=5, member_id="m")


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("client_id", ["me", "", None])
def test_a_request_frame_is_read_as_it_was_written(version: int, client_id: str | None) -> None:
    frame = joined(encode_request(HEARTBEAT, version, 77, client_id))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = read_request_header(frame[4:])
    assert header == RequestHeader(12, version, 77, client_id)
    assert decode(HeartbeatRequest, frame[4:], version, position) == HEARTBEAT


@pytest.mark.parametrize("version", range(5))
def test_a_response_frame_is_read_as_it_was_written(version: int) -> None:
    answer = HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
    frame = joined(encode_response(answer, version, 77))
    assert decode_response(frame[4:], HeartbeatResponse, version) == (77, answer)


def test_an_answer_of_very_many_bytes_is_refused_but_for_records() -> None:
    """Records are somewhere else: in files."""
    assignment = bytes(MOST_ANSWER_BYTES)
    answer = SyncGroupResponse(error_code=ErrorCode.NONE, assignment=assignment)
    with pytest.raises(AnswerTooLarge, match=f"more than {MOST_ANSWER_BYTES} bytes"):
        encode_response(answer, 1, 77)
    with pytest.raises(AnswerTooLarge):
        list(encode_response_in_steps(answer, 1, 77))
    partition = FetchResponse.PartitionData(
        partition_index=0, error_code=ErrorCode.NONE, high_watermark=0, aborted_transactions=None, records=assignment
    )
    topics = [FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])]
    sent = encode_response(FetchResponse(responses=topics), 4, 77)
    assert sum(map(len, sent)) > MOST_ANSWER_BYTES  # type: ignore[arg-type]


def test_api_versions_answers_always_have_the_oldest_header() -> None:
    assert response_header_version(18, 3) == response_header_version(18, 4) == 0
    assert response_header_version(12, 4) == 1
    answer = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[])
    assert joined(encode_response(answer, 3, 1))[4:] == bytes.fromhex("00000001 0000 01 00000000 00")


def test_an_api_versions_request_of_the_future_can_be_answered_in_version_0() -> None:
    frame = joined(encode_request(ApiVersionsRequest(), 3, 9, "new"))[4:]
    header, _ = read_request_header(frame[:2] + b"\x00\x63" + frame[4:])
    assert (header.api_version, header.correlation_id) == (99, 9)
    key = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[key])
    found = joined(encode_response(answer, 0, 9))
    assert found.hex(" ") == "00 00 00 10 00 00 00 09 00 23 00 00 00 01 00 12 00 00 00 04"


def test_only_controlled_shutdown_version_0_has_no_client_id() -> None:
    assert request_header_version(7, 0) == 0
    assert request_header_version(7, 1) == 1
    assert request_header_version(17, 1) == 1


def test_a_header_of_countless_tagged_fields_is_refused() -> None:
    fields = MOST_TAGS + 1
    count = bytes((fields & 127 | 128, fields >> 7))
    with pytest.raises(MalformedMessage, match=f"{fields} tagged fields"):
        read_request_header(bytes.fromhex("000c 0004 00000001 ffff") + count + b"\x63\x00" * fields)


def test_a_bad_header_is_refused() -> None:
    with pytest.raises(KafkaError, match="4711"):
        read_request_header(b"\x12\x67\x00\x00\x00\x00\x00\x01")
    for size in range(10):
        with pytest.raises(MalformedMessage):
            read_request_header(bytes.fromhex("000c 0004 00000001 0003 616263 01 63 01 00")[:size])

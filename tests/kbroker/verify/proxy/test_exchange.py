"""A request's head is read from its first bytes; errors are written where an answer has places for them."""

from typing import Any

import pytest

from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import ErrorCode, MalformedMessage
from kbroker.protocol.headers import encode_request
from kbroker.protocol.messages.groups import HeartbeatResponse, OffsetFetchResponse
from kbroker.protocol.messages.metadata import MetadataRequest
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.verify.proxy.exchange import RequestHead, produce_answer, read_head, set_errors
from tests.protocol.frames import joined

PRODUCE_VERSIONS = range(API_BY_KEY[0].max_version + 1)


def frame(request: Any, version: int, client_id: str | None = "me") -> bytes:
    """A request's bytes behind its size."""
    return joined(encode_request(request, version, 77, client_id))[4:]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("transactional_id", [None, "mine"])
def test_a_produce_without_acks_gets_no_answer(version: int, acks: int, transactional_id: str | None) -> None:
    if version < 3 and transactional_id is not None:
        transactional_id = None
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1, topic_data=[])
    assert read_head(frame(request, version)) == RequestHead(0, version, 77, "me", acks != 0)


@pytest.mark.parametrize("client_id", [None, "", "ünï"])
def test_the_client_id_is_read_in_old_and_new_headers(client_id: str | None) -> None:
    for version in (0, 12):
        assert read_head(frame(MetadataRequest(topics=[]), version, client_id)).client_id == client_id


def test_the_head_of_an_api_that_nobody_knows_is_read() -> None:
    assert read_head(b"\x7f\xff\x00\x09\x00\x00\x00\x05\x00\x02me\xff\xff") == RequestHead(32767, 9, 5, "me", True)


@pytest.mark.parametrize("size", range(12))
def test_too_few_bytes_are_no_head(size: int) -> None:
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
    with pytest.raises(MalformedMessage):
        read_head(frame(request, 2)[:size])


def test_an_error_is_written_into_the_innermost_places() -> None:
    answer = OffsetFetchResponse(
        groups=[
            OffsetFetchResponse.OffsetFetchResponseGroup(
                group_id="g",
                topics=[
                    OffsetFetchResponse.OffsetFetchResponseTopics(
                        name="t",
                        partitions=[
                            OffsetFetchResponse.OffsetFetchResponsePartitions(
                                partition_index=0, committed_offset=5, metadata=None, error_code=ErrorCode.NONE
                            )
                        ],
                    )
                ],
            )
        ]
    )
    set_errors(answer, ErrorCode.NOT_COORDINATOR)
    assert answer.groups[0].topics[0].partitions[0].error_code is ErrorCode.NOT_COORDINATOR
    assert answer.groups[0].error_code is ErrorCode.NONE
    empty = OffsetFetchResponse(groups=[OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=[])])
    set_errors(empty, ErrorCode.NOT_COORDINATOR)
    assert empty.groups[0].error_code is ErrorCode.NOT_COORDINATOR
    flat = HeartbeatResponse(error_code=ErrorCode.NONE)
    set_errors(flat, ErrorCode.ILLEGAL_GENERATION)
    assert flat.error_code is ErrorCode.ILLEGAL_GENERATION


def test_a_refused_produce_names_each_partition() -> None:
    request = ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=name, partition_data=[ProduceRequest.PartitionProduceData(index=n, records=b"") for n in range(2)]
            )
            for name in ("a", "b")
        ],
    )
    answer = produce_answer(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    told = [(t.name, p.index, p.error_code) for t in answer.responses for p in t.partition_responses]
    assert told == [(name, n, ErrorCode.NOT_LEADER_OR_FOLLOWER) for name in ("a", "b") for n in range(2)]

"""Transactional requests and what their answers mean."""

import pytest

from kbroker.client import transaction_requests as requests
from kbroker.client.transaction_requests import Verdict, verdict_on
from kbroker.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.transactions import (
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    TxnOffsetCommitResponse,
)

ME = (7, 3)


@pytest.mark.parametrize(
    ("verdict", "codes"),
    [
        (
            Verdict.AGAIN,
            "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR CONCURRENT_TRANSACTIONS "
            "NOT_ENOUGH_REPLICAS REQUEST_TIMED_OUT UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (
            Verdict.ABORT,
            "TRANSACTION_ABORTABLE TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED ILLEGAL_GENERATION "
            "UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID OPERATION_NOT_ATTEMPTED",
        ),
        (
            Verdict.ANEW,
            "PRODUCER_FENCED INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING INVALID_TXN_STATE "
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        ),
    ],
)
def test_each_refusal_asks_for_one_of_three_things(verdict: Verdict, codes: str) -> None:
    assert {name: verdict_on(ErrorCode[name]) for name in codes.split()} == dict.fromkeys(codes.split(), verdict)


def added(*codes: ErrorCode) -> AddPartitionsToTxnResponse:
    of = AddPartitionsToTxnResponse
    results = [
        of.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in enumerate(codes)
    ]
    return of(results_by_topic_v3_and_below=[of.AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)])


def test_the_gravest_partition_speaks_for_all() -> None:
    fine, again = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
    not_tried, denied = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    fenced = ErrorCode.PRODUCER_FENCED
    assert requests.refused_partitions(added(fine, fine)) is None
    for codes, worst in (
        ((fine, again), (1, again)),
        ((not_tried, denied, not_tried), (1, denied)),
        ((again, denied, fenced), (2, fenced)),
        ((not_tried, again), (1, again)),
    ):
        error = requests.refused_partitions(added(*codes))
        assert error is not None
        assert (error.topic, error.partition, error.code) == ("t", *worst)


def test_a_refused_offset_is_named_with_its_partition() -> None:
    of = TxnOffsetCommitResponse
    one = of.TxnOffsetCommitResponsePartition(partition_index=4, error_code=ErrorCode.ILLEGAL_GENERATION)
    answer = of(topics=[of.TxnOffsetCommitResponseTopic(name="in", partitions=[one])])
    error = requests.refused_partitions(answer)
    assert error is not None
    assert (error.topic, error.partition, error.code) == ("in", 4, ErrorCode.ILLEGAL_GENERATION)


def test_requests_say_who_asks_and_for_what() -> None:
    keys = [TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("a", 2)]
    request = requests.add_partitions("etl", ME, keys)
    assert request.v3_and_below_transactional_id == "etl"
    assert (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == ME
    assert {topic.name: topic.partitions for topic in request.v3_and_below_topics} == {"a": [0, 2], "b": [1]}
    group = GroupMetadata("g", 5, "member", "instance")
    commit = requests.offset_commit("etl", ME, group, {keys[1]: OffsetAndMetadata(9, "note", 2)})
    assert (commit.group_id, commit.generation_id, commit.member_id) == ("g", 5, "member")
    assert (commit.group_instance_id, commit.producer_id, commit.producer_epoch) == ("instance", *ME)
    (entry,) = commit.topics[0].partitions
    assert (entry.partition_index, entry.committed_offset, entry.committed_metadata) == (1, 9, "note")
    assert entry.committed_leader_epoch == 2
    end = requests.end("etl", ME, committed=True)
    assert (end.transactional_id, end.producer_id, end.producer_epoch, end.committed) == ("etl", *ME, True)
    assert requests.refused(EndTxnResponse(error_code=ErrorCode.NONE)) is None

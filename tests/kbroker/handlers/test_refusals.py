"""Every API that is served can say that it failed as a whole."""

from typing import Any

import pytest

from kbroker.handlers import load_all
from kbroker.handlers.refusals import blank, refusal
from kbroker.handlers.registry import HANDLERS
from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.headers import encode_response
from kbroker.protocol.messages.metadata import MetadataResponse
from kbroker.protocol.messages.produce import ProduceRequest
from kbroker.protocol.messages.topics import DeleteTopicsRequest
from kbroker.protocol.messages.transactions import AddPartitionsToTxnRequest, DescribeTransactionsRequest

load_all()


@pytest.mark.parametrize("key", sorted(HANDLERS))
def test_every_version_of_every_api_that_is_served_can_be_refused(key: int) -> None:
    api = API_BY_KEY[key]
    request: Any = blank(api.request)
    for version in range(api.min_version, api.max_version + 1):
        answer = refusal(key, request, version, ErrorCode.NOT_CONTROLLER, "ask another")
        assert encode_response(answer, version, 1)


def test_a_refused_produce_request_names_each_partition() -> None:
    topic = ProduceRequest.TopicProduceData(
        name="t",
        partition_data=[ProduceRequest.PartitionProduceData(index=index, records=b"") for index in (3, 5)],
    )
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    answer = refusal(0, request, 9, ErrorCode.KAFKA_STORAGE_ERROR)
    partitions = answer.responses[0].partition_responses
    assert [(p.index, p.error_code, p.base_offset) for p in partitions] == [
        (3, ErrorCode.KAFKA_STORAGE_ERROR, -1),
        (5, ErrorCode.KAFKA_STORAGE_ERROR, -1),
    ]


def test_topics_to_delete_are_named_in_old_and_new_versions() -> None:
    old = refusal(20, DeleteTopicsRequest(topic_names=["a"], timeout_ms=1), 5, ErrorCode.NOT_CONTROLLER, "x")
    assert [(each.name, each.error_message) for each in old.responses] == [("a", "x")]
    state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=b"\x01" * 16)
    new = refusal(20, DeleteTopicsRequest(topics=[state], timeout_ms=1), 6, ErrorCode.NOT_CONTROLLER)
    assert [(each.name, each.topic_id) for each in new.responses] == [(None, b"\x01" * 16)]


@pytest.mark.parametrize("version", [3, 4])
def test_partitions_that_cannot_be_added_to_a_transaction_are_named_where_clients_ask(version: int) -> None:
    structs = AddPartitionsToTxnRequest
    topics = [structs.AddPartitionsToTxnTopic(name="t", partitions=[4, 6])]
    request = structs(v3_and_below_topics=topics) if version == 3 else structs(transactions=[])
    answer = refusal(24, request, version, ErrorCode.NOT_COORDINATOR)
    if version == 4:
        assert answer.error_code is ErrorCode.NOT_COORDINATOR
        return
    (topic,) = answer.results_by_topic_v3_and_below
    assert [(p.partition_index, p.partition_error_code) for p in topic.results_by_partition] == [
        (4, ErrorCode.NOT_COORDINATOR),
        (6, ErrorCode.NOT_COORDINATOR),
    ]


def test_each_transaction_that_cannot_be_described_is_named() -> None:
    answer = refusal(65, DescribeTransactionsRequest(transactional_ids=["a", "b"]), 0, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert [(each.transactional_id, each.error_code) for each in answer.transaction_states] == [
        ("a", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("b", ErrorCode.UNKNOWN_SERVER_ERROR),
    ]


def test_blank_fills_what_has_no_default() -> None:
    broker = blank(MetadataResponse.MetadataResponseBroker, host="h")
    assert (broker.node_id, broker.host, broker.port) == (0, "h", 0)

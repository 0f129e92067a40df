"""Plans: made once for each message and version, refusing versions that a message does not have."""

import pytest

from kbroker.protocol.errors import ErrorCode, KafkaError
from kbroker.protocol.messages.groups import HeartbeatRequest
from kbroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kbroker.protocol.plans import element_plan, plan_of


def test_a_plan_is_made_once_for_each_version() -> None:
    assert plan_of(HeartbeatRequest, 1) is plan_of(HeartbeatRequest, 1)
    assert plan_of(HeartbeatRequest, 1) is not plan_of(HeartbeatRequest, 3)


def test_a_version_that_a_message_does_not_have_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        plan_of(HeartbeatRequest, 99)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_plan_knows_whether_its_message_or_a_struct_in_it_holds_arrays() -> None:
    assert not plan_of(HeartbeatRequest, 3).holds_arrays
    assert plan_of(MetadataRequest, 8).holds_arrays
    topic = element_plan(MetadataRequest.MetadataRequestTopic, MetadataRequest, 8)
    assert not topic.holds_arrays
    assert element_plan(MetadataResponse.MetadataResponseTopic, MetadataResponse, 8).holds_arrays


def test_the_smallest_size_is_what_a_message_takes_with_nothing_in_it() -> None:
    assert plan_of(HeartbeatRequest, 0).smallest == 2 + 4 + 2
    assert plan_of(HeartbeatRequest, 4).smallest == 1 + 4 + 1 + 1 + 1

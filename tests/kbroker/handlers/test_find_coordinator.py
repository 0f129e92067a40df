import asyncio

import pytest

from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.configs import DescribeConfigsRequest
from kbroker.protocol.messages.groups import FindCoordinatorRequest
from kbroker.protocol.messages.metadata import MetadataRequest
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.asking import Ask, asking


@pytest.mark.parametrize("version", range(7))
async def test_every_version_names_this_broker(ask: Ask, version: int) -> None:
    request = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g", "h"])
    answer = await ask(request, version)
    found = [answer] if version < 4 else answer.coordinators
    assert [(each.error_code, each.node_id, each.host) for each in found] == [(ErrorCode.NONE, 1, "127.0.0.1")] * (
        1 if version < 4 else 2
    )
    if version in (1, 2, 3):
        assert answer.error_message == "NONE"


@pytest.mark.parametrize("version", range(1, 7))
async def test_a_transactional_id_has_a_coordinator_too(ask: Ask, version: int) -> None:
    request = FindCoordinatorRequest(key_type=1, key="id", coordinator_keys=["id"] if version >= 4 else [])
    if version >= 4:
        request.key = ""
    answer = await ask(request, version)
    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, found.node_id, found.host) == (ErrorCode.NONE, 1, "127.0.0.1")


@pytest.mark.parametrize(
    ("key_type", "name", "settings"),
    [
        (0, "__consumer_offsets", {"compression.type": "producer", "cleanup.policy": "compact"}),
        (
            1,
            "__transaction_state",
            {
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "unclean.leader.election.enable": "false",
                "min.insync.replicas": "1",
                "segment.bytes": "1000000",
            },
        ),
    ],
)
async def test_the_first_question_creates_the_topic_with_kafkas_settings(
    make_broker: MakeBroker, key_type: int, name: str, settings: dict[str, str]
) -> None:
    broker = make_broker(
        properties={
            "offsets.topic.num.partitions": "7",
            "transaction.state.log.num.partitions": "7",
            "transaction.state.log.segment.bytes": "1000000",
        }
    )
    async with asking(broker) as first, asking(broker) as second:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
        answers = await asyncio.gather(first(request, 4), second(request, 4))
        assert [answer.coordinators[0].error_code for answer in answers] == [ErrorCode.NONE] * 2
        topics = [MetadataRequest.MetadataRequestTopic(name=name)]
        described = await first(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=2, resource_name=name, configuration_keys=list(settings)
        )
        configs = (await first(DescribeConfigsRequest(resources=[resource]), 4)).results[0].configs
    assert {each.name: each.value for each in configs} == settings
    (topic,) = described.topics
    assert (topic.is_internal, len(topic.partitions)) == (True, 7)


async def test_a_topic_that_cannot_be_created_leaves_no_coordinator(make_broker: MakeBroker) -> None:
    broker = make_broker(properties={"offsets.topic.replication.factor": "3"})
    async with asking(broker) as ask:
        answer = await ask(FindCoordinatorRequest(key="g"), 3)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            -1,
            "",
            -1,
        )
        assert broker.log_tail(50).count("cannot be created") == 1


@pytest.mark.parametrize(
    ("key_type", "version", "expected"),
    [
        (2, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, 5, ErrorCode.INVALID_REQUEST),
        (9, 3, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_other_kinds_of_coordinators_are_not_here(
    ask: Ask, key_type: int, version: int, expected: ErrorCode
) -> None:
    keys = {"coordinator_keys": ["k"]} if version >= 4 else {"key": "k"}
    answer = await ask(FindCoordinatorRequest(key_type=key_type, **keys), version)
    code = answer.coordinators[0].error_code if version >= 4 else answer.error_code
    assert code is expected

"""DescribeCluster and UpdateFeatures on a real broker."""

from typing import Any

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.messages.metadata import DescribeClusterRequest, UpdateFeaturesRequest
from tests.fixtures.brokers import MakeBroker
from tests.kbroker.asking import Ask, asking


@pytest.mark.parametrize("version", range(2))
async def test_the_cluster_is_described(ask: Ask, broker: BrokerProcess, version: int) -> None:
    answer = await ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    assert answer.error_code is ErrorCode.NONE
    assert len(answer.cluster_id) == 22
    assert answer.controller_id == 1
    assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(1, "127.0.0.1", broker.port)]
    assert answer.cluster_authorized_operations == 8096


async def test_controllers_are_no_endpoints_here(ask: Ask) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
    assert (await ask(request, 1)).error_code is ErrorCode.MISMATCHED_ENDPOINT_TYPE
    unknown = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=7)
    assert (await ask(unknown, 1)).error_code is ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def update(feature: str, level: int, validate_only: bool = False, **rest: Any) -> UpdateFeaturesRequest:
    key = UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level, **rest)
    return UpdateFeaturesRequest(feature_updates=[key], validate_only=validate_only)


@pytest.mark.parametrize("version", range(2))
async def test_features_are_raised_and_lowered_and_told_to_whoever_connects(
    make_broker: MakeBroker, version: int
) -> None:
    lower = {"upgrade_type": 2} if version else {"allow_downgrade": True}
    async with asking(make_broker()) as ask:

        async def outcome(request: UpdateFeaturesRequest) -> tuple[ErrorCode, str | None]:
            answer = await ask(request, version)
            assert answer.error_code is ErrorCode.NONE
            (result,) = answer.results
            return result.error_code, result.error_message

        async def finalized() -> tuple[int, list[tuple[str, int]]]:
            answer = await ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
            levels = [(each.name, each.max_version_level) for each in answer.finalized_features]
            return answer.finalized_features_epoch, levels

        done = ErrorCode.NONE, None
        if version:
            assert await outcome(update("transaction.version", 2, validate_only=True)) == done
            assert await finalized() == (0, [])
        assert await outcome(update("transaction.version", 2)) == done
        assert await finalized() == (1, [("transaction.version", 2)])
        code, why = await outcome(update("transaction.version", 1))
        assert (code, "downgrade" in str(why)) == (ErrorCode.INVALID_REQUEST, True)
        assert await outcome(update("transaction.version", 0, **lower)) == done
        assert await finalized() == (2, [])


async def test_a_cluster_may_begin_with_an_epoch_for_each_transaction(make_broker: MakeBroker) -> None:
    broker = make_broker(properties={"kbroker.new.cluster.transaction.version": "2"})
    async with asking(broker) as ask:
        answer = await ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        assert [(each.name, each.max_version_level) for each in answer.finalized_features] == [
            ("transaction.version", 2)
        ]

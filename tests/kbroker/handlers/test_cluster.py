"""DescribeCluster on a real broker."""

import pytest

from kbroker.dev.broker_process import BrokerProcess
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.metadata import DescribeClusterRequest
from tests.kbroker.asking import Ask


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

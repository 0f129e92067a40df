"""Every answer that names a broker, in every version: the address is the proxy's, all else is as it was."""

from typing import Any

import pytest

from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.codec import decode, encode
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.api_versions import ApiVersionsResponse
from kbroker.protocol.messages.fetch import FetchResponse
from kbroker.protocol.messages.groups import FindCoordinatorResponse
from kbroker.protocol.messages.metadata import DescribeClusterResponse, MetadataResponse
from kbroker.protocol.messages.produce import ProduceResponse
from kbroker.protocol.schema import schema_of
from kbroker.verify.proxy.addresses import FIRST_WITH_ADDRESSES, bound_versions, holds_addresses, is_known, rewrite


def coordinator(key: str, broker: int, host: str, port: int, error: ErrorCode) -> Any:
    return FindCoordinatorResponse.Coordinator(key=key, node_id=broker, host=host, port=port, error_code=error)


def answers(version: int) -> dict[int, Any]:
    """One answer of each API that names brokers 1 and 2."""
    places = ((1, "one", 9092), (2, "two", 9093))
    return {
        3: MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=n, host=h, port=p) for n, h, p in places],
            cluster_id="cluster" if version >= 2 else None,
            topics=[],
        ),
        60: DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            cluster_id="cluster",
            brokers=[DescribeClusterResponse.DescribeClusterBroker(broker_id=n, host=h, port=p) for n, h, p in places],
        ),
        10: FindCoordinatorResponse(node_id=1, host="one", port=9092)
        if version < 4
        else FindCoordinatorResponse(
            coordinators=[
                coordinator("a", 1, "one", 9092, ErrorCode.NONE),
                coordinator("b", -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
                coordinator("c", 2, "two", 9093, ErrorCode.NONE),
            ]
        ),
        0: ProduceResponse(
            responses=[], node_endpoints=[ProduceResponse.NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in places]
        ),
        1: FetchResponse(
            responses=[], node_endpoints=[FetchResponse.NodeEndpoint(node_id=n, host=h, port=p) for n, h, p in places]
        ),
    }


CASES = [
    (key, version)
    for key, first in FIRST_WITH_ADDRESSES.items()
    for version in range(max(first, API_BY_KEY[key].min_version), API_BY_KEY[key].max_version + 1)
]


@pytest.mark.parametrize(("key", "version"), CASES)
def test_each_brokers_address_is_replaced_in_each_version(key: int, version: int) -> None:
    asked: list[tuple[int, tuple[str, int]]] = []

    def translate(broker: int, address: tuple[str, int]) -> tuple[str, int]:
        asked.append((broker, address))
        return "proxy", 20_000 + broker

    original = answers(version)[key]
    answer = decode(type(original), encode(original, version), version)
    assert rewrite(answer, translate)
    told = repr(decode(type(original), encode(answer, version), version))
    assert asked[0] == (1, ("one", 9092))
    assert asked[-1] in [(1, ("one", 9092)), (2, ("two", 9093))]
    expected = repr(decode(type(original), encode(original, version), version))
    for broker, (host, port) in enumerate((("one", 9092), ("two", 9093)), 1):
        expected = expected.replace(f"host={host!r}, port={port}", f"host='proxy', port={20_000 + broker}")
    assert told == expected


def test_no_answer_with_a_host_and_a_port_has_been_forgotten() -> None:
    found = set()
    for api in API_BY_KEY.values():
        structs = [api.response, *(each for each in vars(api.response).values() if hasattr(each, "__schema__"))]
        if any({"host", "port"} <= {field.name for field in schema_of(struct).fields} for struct in structs):
            found.add(api.key)
    assert found == set(FIRST_WITH_ADDRESSES)


def test_kraft_controllers_keep_their_addresses() -> None:
    answer = answers(1)[60]
    answer.endpoint_type = 2
    assert not rewrite(answer, lambda broker, address: ("proxy", 1))
    assert answer.brokers[0].host == "one"


def test_an_answer_without_endpoints_needs_no_change() -> None:
    assert not rewrite(FetchResponse(responses=[]), lambda broker, address: ("proxy", 1))


def test_no_version_is_offered_whose_addresses_are_unknown() -> None:
    def offer(key: int, highest: int) -> Any:
        return ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=highest)

    answer = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[offer(3, 99), offer(11, 99), offer(60, 0)])
    assert bound_versions(answer)
    assert [each.max_version for each in answer.api_keys] == [API_BY_KEY[3].max_version, 99, 0]
    assert not bound_versions(answer)


def test_only_what_holds_addresses_is_looked_into() -> None:
    assert holds_addresses(1, 16)
    assert not holds_addresses(1, 15)
    assert not holds_addresses(0, 9)
    assert not holds_addresses(777, 0)
    assert is_known(3, 0)
    assert not is_known(3, 99)
    assert not is_known(777, 0)

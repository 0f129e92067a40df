"""The addresses in a cluster's answers, replaced by the proxy's own (pure).

Metadata, DescribeCluster and FindCoordinator name brokers, and so do Produce (version 10 on) and Fetch (16 on) for
partitions whose leader has moved. What the answer to ApiVersions offers of these is bounded to the versions that are
known here: in a newer one the clients would be told the way around the proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kbroker.protocol.apis import API_BY_KEY
from kbroker.protocol.messages.api_versions import ApiVersionsResponse
from kbroker.protocol.messages.fetch import FetchResponse
from kbroker.protocol.messages.groups import FindCoordinatorResponse
from kbroker.protocol.messages.metadata import DescribeClusterResponse, MetadataResponse
from kbroker.protocol.messages.produce import ProduceResponse
from kbroker.protocol.schema import Message, schema_of

Address = tuple[str, int]
Translate = Callable[[int, Address], Address]
"""A broker's id and address to the address that clients are told."""

CONTROLLERS = 2
"""DescribeCluster's endpoint type of a KRaft controller, which is no way to a broker."""
API_VERSIONS_KEY = schema_of(ApiVersionsResponse).api_key

FIRST_WITH_ADDRESSES = {
    schema_of(message).api_key: first
    for message, first in (
        (ProduceResponse, 10),
        (FetchResponse, 16),
        (MetadataResponse, 0),
        (FindCoordinatorResponse, 0),
        (DescribeClusterResponse, 0),
    )
}
"""API key -> the first version whose answers hold addresses."""


def holds_addresses(api_key: int, version: int) -> bool:
    """Whether an answer must be looked into."""
    first = FIRST_WITH_ADDRESSES.get(api_key)
    return first is not None and version >= first


def is_known(api_key: int, version: int) -> bool:
    """Whether the codec reads this version."""
    api = API_BY_KEY.get(api_key)
    return api is not None and api.min_version <= version <= api.max_version


def rewrite(answer: Message, translate: Translate) -> bool:
    """Replace the addresses in a freshly decoded answer; False when there are none."""
    changed = False
    for endpoint in _endpoints(answer):
        node_id = endpoint.broker_id if isinstance(answer, DescribeClusterResponse) else endpoint.node_id
        if node_id < 0 or not endpoint.host or endpoint.port <= 0:
            continue  # a coordinator that there is not
        endpoint.host, endpoint.port = translate(node_id, (endpoint.host, endpoint.port))
        changed = True
    return changed


def _endpoints(answer: Message) -> Iterable[Any]:
    if isinstance(answer, FindCoordinatorResponse):
        return (answer, *answer.coordinators)
    if isinstance(answer, DescribeClusterResponse) and answer.endpoint_type == CONTROLLERS:
        return ()
    if isinstance(answer, DescribeClusterResponse | MetadataResponse):
        return answer.brokers
    assert isinstance(answer, ProduceResponse | FetchResponse), answer
    return answer.node_endpoints


def bound_versions(answer: ApiVersionsResponse) -> bool:
    """Offer no version whose addresses are not known here; whether anything had to be changed."""
    changed = False
    for offered in answer.api_keys:
        if offered.api_key in FIRST_WITH_ADDRESSES:
            known = API_BY_KEY[offered.api_key].max_version
            if offered.max_version > known:
                offered.max_version = known
                changed = True
    return changed

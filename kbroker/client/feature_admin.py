"""Administration of features: what the brokers of a cluster can do together, and which of it counts (KIP-584)."""

from __future__ import annotations

import time
from typing import Any, Protocol

from kbroker.client.cluster import Cluster
from kbroker.client.errors import error_for
from kbroker.client.kafka_releases import release_like
from kbroker.client.types import FeatureDescription
from kbroker.client.values import text, whole_number
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.api_versions import ApiVersionsRequest
from kbroker.protocol.messages.metadata import UpdateFeaturesRequest
from kbroker.protocol.schema import Message

UPGRADE, DOWNGRADE = 1, 2
ASKED_TIMES = 5


class _Admin(Protocol):
    cluster: Cluster

    def _limit_ms(self, timeout_ms: int | None) -> int: ...

    async def _ask_controller(self, request: Message, timeout_ms: int) -> Any: ...


class FeatureAdmin:
    """Admin's calls about features."""

    async def describe_features(self: _Admin) -> dict[str, FeatureDescription]:
        """Return what the broker that is asked supports of each feature, and which level counts in the cluster."""
        if not self.cluster.metadata.nodes:
            await self.cluster.refresh()
        request = ApiVersionsRequest(client_software_name="kbroker", client_software_version="1")
        answer = await self.cluster.ask(request)
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        return {
            name: FeatureDescription(name, *supported.get(name, (0, 0)), levels.get(name, 0))
            for name in sorted(levels.keys() | supported)
        }

    async def describe_software(self: _Admin, broker: int) -> str:
        """Return what software a broker is: ours say it; of others, which release of Kafka their APIs are those of."""
        request = ApiVersionsRequest(client_software_name="kbroker", client_software_version="1", include_software=True)
        answer = await self.cluster.ask(request, broker)
        release = release_like((await self.cluster.connection(broker)).versions)
        return answer.software or (f"like Kafka {release}" if release else "not known")

    async def answer_seconds(self: _Admin, broker: int) -> float:
        """Return how long a broker takes for an answer without work, the longest of some: how busy its loop is."""
        request = ApiVersionsRequest(client_software_name="kbroker", client_software_version="1")
        connection = await self.cluster.connection(broker)
        longest = 0.0
        for _ in range(ASKED_TIMES):
            began = time.perf_counter()
            await connection.request(request, timeout=self.cluster.config.request_timeout_ms / 1000)
            longest = max(longest, time.perf_counter() - began)
        return longest

    async def update_feature(
        self: _Admin,
        feature: str,
        level: int,
        *,
        downgrade: bool = False,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Raise a feature's level, or lower it (0: it counts no more); raises the reason where that cannot be."""
        key = UpdateFeaturesRequest.FeatureUpdateKey(
            feature=text("a feature", feature),
            max_version_level=whole_number("a level", level, 16),
            upgrade_type=DOWNGRADE if downgrade else UPGRADE,
        )
        limit_ms = self._limit_ms(timeout_ms)
        request = UpdateFeaturesRequest(timeout_ms=limit_ms, feature_updates=[key], validate_only=validate_only)
        answer = await self._ask_controller(request, limit_ms)
        for each in (answer, *answer.results):
            if each.error_code is not ErrorCode.NONE:
                raise error_for(each.error_code, each.error_message or feature)

"""Administration of clients' limits (Kafka's client quotas)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import SupportsFloat

from kbroker.client.cluster import Cluster
from kbroker.client.errors import ConfigurationError, error_for
from kbroker.client.values import mapping, text
from kbroker.protocol.errors import ErrorCode
from kbroker.protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """What an entity may use: limits by Kafka's keys (producer_byte_rate, …).

    `entity` gives a name to "user", "client-id" or both, or to "ip"; None: whoever has no limit of their own.
    """

    entity: Mapping[str, str | None]
    limits: Mapping[str, float]


class QuotaAdmin:
    """Admin's calls about limits."""

    cluster: Cluster

    async def describe_client_quotas(self) -> list[ClientQuota]:
        """Return all limits."""
        answer = await self.cluster.ask(DescribeClientQuotasRequest(components=[], strict=False))
        if answer.error_code is not ErrorCode.NONE:
            raise error_for(answer.error_code, answer.error_message)
        return [
            ClientQuota(
                {each.entity_type: each.entity_name for each in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in answer.entries or ()
        ]

    async def alter_client_quotas(
        self, entity: Mapping[str, str | None], changes: Mapping[str, float | None], validate_only: bool = False
    ) -> None:
        """Set limits of an entity, and remove those that are None."""
        made = AlterClientQuotasRequest
        entry = made.EntryData(
            entity=[
                made.EntityData(
                    entity_type=text("an entity's kind", kind),
                    entity_name=None if name is None else text("a name", name),
                )
                for kind, name in mapping("kinds of entities to names", entity).items()
            ],
            ops=[
                made.OpData(key=text("a limit's key", key), value=_limit(key, value), remove=value is None)
                for key, value in mapping("keys to limits", changes).items()
            ],
        )
        answer = await self.cluster.ask(made(entries=[entry], validate_only=validate_only))
        for result in answer.entries:
            if result.error_code is not ErrorCode.NONE:
                raise error_for(result.error_code, result.error_message)


def _limit(key: str, value: SupportsFloat | None) -> float:
    """Return a limit as it is sent; one that is to be removed has no value."""
    if value is None:
        return 0.0
    if not isinstance(value, SupportsFloat) or isinstance(value, bool):
        raise ConfigurationError(f"{key} is a number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise ConfigurationError(f"{key} is too large for a number of the protocol's") from None

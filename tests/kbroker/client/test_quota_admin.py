"""Admin's calls about clients' limits, at a real broker."""

import pytest

from kbroker.client.admin import Admin
from kbroker.client.errors import BrokerError
from kbroker.client.quota_admin import ClientQuota
from kbroker.dev.broker_process import BrokerProcess


async def test_limits_are_set_described_and_removed(own_broker: BrokerProcess) -> None:
    entity = {"user": "ann", "client-id": None}
    async with Admin(own_broker.bootstrap) as admin:
        assert await admin.describe_client_quotas() == []
        await admin.alter_client_quotas(entity, {"producer_byte_rate": 5.0}, validate_only=True)
        assert await admin.describe_client_quotas() == []
        await admin.alter_client_quotas(entity, {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0})
        found = await admin.describe_client_quotas()
        assert found == [ClientQuota(entity, {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0})]
        await admin.alter_client_quotas(entity, {"producer_byte_rate": None})
        assert [dict(each.limits) for each in await admin.describe_client_quotas()] == [{"consumer_byte_rate": 6.0}]
        with pytest.raises(BrokerError, match="INVALID_REQUEST"):
            await admin.alter_client_quotas(entity, {"connection_creation_rate": 1.0})

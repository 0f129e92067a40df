"""Features as Admin shows and changes them."""

from __future__ import annotations

import pytest

from kbroker import Admin
from kbroker.client.errors import BrokerError
from kbroker.client.types import FeatureDescription
from kbroker.protocol.errors import ErrorCode
from tests.fixtures.brokers import MakeBroker

FEATURE = "transaction.version"


def test_a_level_is_raised_when_all_brokers_support_it_and_lowered_again(make_broker: MakeBroker) -> None:
    with Admin(make_broker().bootstrap) as admin:
        assert admin.describe_features() == {FEATURE: FeatureDescription(FEATURE, 0, 2, 0)}
        admin.update_feature(FEATURE, 2, validate_only=True)
        assert admin.describe_features()[FEATURE].level == 0
        admin.update_feature(FEATURE, 2)
        assert admin.describe_features()[FEATURE].level == 2
        with pytest.raises(BrokerError, match="0 would be a downgrade") as refused:
            admin.update_feature(FEATURE, 0)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        admin.update_feature(FEATURE, 0, downgrade=True)
        assert admin.describe_features()[FEATURE].level == 0


def test_what_software_a_broker_is_is_told_by_who_has_not_heard_of_it_before(make_broker: MakeBroker) -> None:
    with Admin(make_broker(1).bootstrap) as admin:
        assert admin.describe_software(1).startswith("kbroker")
        make_broker(2)
        assert admin.describe_software(2).startswith("kbroker")

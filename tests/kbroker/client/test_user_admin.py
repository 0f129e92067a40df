"""Users who log in by SCRAM, set and deleted by the clients of this package."""

import pytest

from kbroker import Admin
from kbroker.client.errors import ResourceNotFoundError, UnacceptableCredentialError
from kbroker.dev.broker_process import BrokerProcess


def test_a_user_is_set_shown_and_deleted(broker: BrokerProcess, topic_name: str) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.set_user(topic_name, "secret", iterations=5_000)
        assert admin.describe_users([topic_name]) == {topic_name: {"SCRAM-SHA-256": 5_000, "SCRAM-SHA-512": 5_000}}
        assert topic_name in admin.describe_users()
        admin.delete_user(topic_name, mechanisms=["SCRAM-SHA-256"])
        assert admin.describe_users([topic_name]) == {topic_name: {"SCRAM-SHA-512": 5_000}}
        admin.delete_user(topic_name)
        assert topic_name not in admin.describe_users()
        assert admin.describe_users([]) == {}


def test_what_is_refused_names_the_user_and_not_the_password(broker: BrokerProcess, topic_name: str) -> None:
    with Admin(broker.bootstrap) as admin:
        with pytest.raises(UnacceptableCredentialError, match=topic_name) as caught:
            admin.set_user(topic_name, "hunter2", iterations=20)
        assert "hunter2" not in str(caught.value)
        with pytest.raises(ResourceNotFoundError, match=topic_name):
            admin.describe_users([topic_name])
        with pytest.raises(ResourceNotFoundError, match=topic_name):
            admin.delete_user(topic_name)
